"""Facts of made-up hosts: one in good order, and changes to it."""

from __future__ import annotations

import copy
from typing import Any

GIB = 1 << 30


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    """Return a healthy GPU."""
    return {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "fault": None,
        "recovery_action": "none",
        "ecc_uncorrected": 0,
        "remap_pending": False,
        "remap_failure": False,
        "retirement_pending": None,
        "retired_pages": None,
        "mig": False,
        "temperature": 40,
        "temperature_slowdown": 90,
        "brakes": [],
        "pcie_width": 16,
        "pcie_width_max": 16,
        "nvlinks": [{"link": link, "active": True, "errors": {}} for link in range(18)],
        "fabric": "completed",
        **changes,
    }


def port(device: str, **changes: Any) -> dict[str, Any]:
    """Return an active port of InfiniBand."""
    return {
        "device": device,
        "port": 1,
        "firmware": "28.39.1002",
        "link": "InfiniBand",
        "state": "active",
        "physical": "linkup",
        "rate": 400.0,
        "width": 4,
        "lid": 12,
        "subnet_manager": 1,
        "counters": {},
        "gids": [{"index": 0, "gid": "fe80:0000:0000:0000:0000:0000:0000:0001", "type": None, "interface": None}],
        **changes,
    }


def interface(name: str, address: str, **changes: Any) -> dict[str, Any]:
    """Return an interface that is up."""
    return {
        "name": name,
        "address": address,
        "netmask": "255.255.255.0",
        "mtu": 9000,
        "up": True,
        "loopback": False,
        "default": True,
        "state": "up",
        "carrier_changes": 2,
        "errors": 0,
        "dropped": 0,
        **changes,
    }


LO = interface("lo", "127.0.0.1", netmask="255.0.0.0", mtu=65536, loopback=True, default=False)

_HEALTHY: dict[str, Any] = {
    "system": {"name": "gpu01", "kernel": "6.8.0-45", "container": None, "cores": 96},
    "gpus": {
        "driver": {"module": "550.54.15", "library": "550.54.15", "cuda": "12.4", "problem": None},
        "source": "nvml",
        "gpus": [gpu(0), gpu(1)],
        "pairs": [{"a": 0, "b": 1, "read": "ok", "write": "ok", "nvlink": True, "path": "SYS"}],
        "devices": 2,
        "switches": 4,
        "manager": True,
    },
    "software": {
        "python": "3.11.7",
        "torch": "2.6.0+cu124",
        "cuda": "12.4",
        "nccl": "2.21.5",
        "wheels": {"nvidia-nccl-cu12": "2.21.5"},
        "libraries": ["/venv/nvidia/nccl/lib/libnccl.so.2"],
    },
    "pci": [
        {"address": f"0000:0{at}:00.0", "kind": "gpu", "width": 16, "max_width": 16, "fatal": 0, "nonfatal": 0}
        for at in (1, 2)
    ]
    + [{"address": "0000:03:00.0", "kind": "nic", "width": 16, "max_width": 16, "fatal": 0, "nonfatal": 0}],
    "kernel": {"source": "/dev/kmsg", "xids": [], "switch_errors": [], "killed": []},
    "infiniband": {"ports": [port("mlx5_0"), port("mlx5_1")], "peer_memory": True, "verbs": True},
    "isolation": {"iommu": True, "types": ["identity"], "options": ["iommu=pt"], "bridges": 4, "redirecting": []},
    "network": {"interfaces": [LO, interface("eth0", "10.0.0.1")], "ipv6": []},
    "names": {"name": "gpu01", "addresses": ["10.0.0.1"], "ipv6": [], "seconds": 0.001, "hosts_file": []},
    "limits": {
        "nofile": {"soft": 1048576, "hard": 1048576},
        "memlock": {"soft": None, "hard": None},
        "nproc": {"soft": None, "hard": None},
        "shm": {"size": 256 * GIB, "free": 250 * GIB},
        "cgroup": {
            "memory_max": 512 * GIB,
            "memory_used": 10 * GIB,
            "oom_kills": 0,
            "pids_max": 10000,
            "pids_used": 100,
        },
    },
    "storage": [
        {"path": "/", "hangs": False, "size": 1000 * GIB, "free": 500 * GIB, "inodes_free": 0.9, "read_only": False}
    ],
    "clock": {"synchronised": True, "error": 0.002, "offset": 0.0001},
    "firewall": {"filters": []},
    "environment": {"variables": {"NCCL_DEBUG": "WARN"}, "files": {}},
}


def facts(**changes: Any) -> dict[str, Any]:
    """Return the facts of the host in good order with some of them changed: ``gpus__driver__cuda="11.8"``."""
    made = copy.deepcopy(_HEALTHY)
    for path, value in changes.items():
        *way, last = path.split("__")
        part: Any = made
        for step in way:
            part = part[int(step) if step.isdigit() else step]
        part[int(last) if last.isdigit() else last] = value
    return made
