"""Probes over made-up trees of /sys, /proc and /dev: what they see, and what they say that they could not see."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.doctor.collect import run_probe
from nccl_triage.doctor.probes import GROUPS
from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget
from nccl_triage.doctor.text import WHY

V2 = "0000:0000:0000:0000:0000:ffff:0a00:0001"
NONE = "0000:0000:0000:0000:0000:0000:0000:0000"


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def look(name: str, root: Path, **where: Any) -> ProbeResult:
    seen = run_probe(name, ProbeTarget(root=root, **where))
    assert "broke" not in {entry["why"] for entry in seen.unseen}
    return seen


def ib_port(device: str, **files: str) -> dict[str, str]:
    base = f"sys/class/infiniband/{device}"
    told = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "rate": "400 Gb/sec (4X NDR)\n",
        "link_layer": "InfiniBand\n",
    }
    told |= {"lid": "0x1f\n", "sm_lid": "0x1\n", **files}
    return {f"{base}/fw_ver": "28.39.1002\n", **{f"{base}/ports/1/{name}": text for name, text in told.items()}}


def test_ports_with_their_gids_and_counters(tmp_path: Path) -> None:
    roce = {"link_layer": "Ethernet\n", "counters/link_downed": "7\n", "counters/symbol_error": "0\n"}
    for index, (gid, kind) in enumerate([("fe80::1", "IB/RoCE v1"), (V2, "RoCE v2"), (NONE, ""), (NONE, "")]):
        roce[f"gids/{index}"] = f"{gid}\n"
        if kind:
            roce[f"gid_attrs/types/{index}"], roce[f"gid_attrs/ndevs/{index}"] = f"{kind}\n", "eth0\n"
    down = ib_port("mlx5_10", state="1: DOWN\n", phys_state="3: Disabled\n", rate="10 Gb/sec (4X SDR)\n")
    files = ib_port("mlx5_2", **roce) | down | {"sys/module/nvidia_peermem/version": "1", "dev/infiniband/uverbs0": ""}
    seen = look("infiniband", tree(tmp_path, files))
    assert seen.unseen == []
    assert (seen.facts["peer_memory"], seen.facts["verbs"]) == (True, True)
    active, idle = seen.facts["ports"]
    assert (active["device"], idle["device"]) == ("mlx5_2", "mlx5_10")
    assert active["gids"] == [
        {"index": 0, "gid": "fe80::1", "type": "RoCE v1", "interface": "eth0"},
        {"index": 1, "gid": V2, "type": "RoCE v2", "interface": "eth0"},
    ]
    assert (active["state"], active["physical"], active["rate"], active["width"]) == ("active", "linkup", 400.0, 4)
    assert (active["lid"], active["subnet_manager"], active["counters"]) == (31, 1, {"link_downed": 7})
    assert (idle["state"], idle["physical"], idle["rate"], idle["gids"]) == ("down", "disabled", 10.0, [])


def config(control: int | None) -> bytes:
    """Return the configuration of a bridge: AER, and behind it ACS with a control register, or nothing more."""
    data = bytearray(4096)
    data[0x100:0x104] = (0x0001 | 1 << 16 | (0x148 if control is not None else 0) << 20).to_bytes(4, "little")
    if control is not None:
        data[0x148:0x150] = (0x000D | 1 << 16).to_bytes(4, "little") + b"\x1f\x00" + control.to_bytes(2, "little")
    return bytes(data)


def bridges(root: Path, **configurations: bytes) -> Path:
    base = root / "sys/bus/pci/devices"
    for name, data in configurations.items():
        folder = tree(base / f"0000:{name[1:]}:00.0", {"class": "0x060400\n"})
        (folder / "config").write_bytes(data)
    return root


def test_what_stands_between_devices(tmp_path: Path) -> None:
    files = {
        f"sys/kernel/iommu_groups/{n}/type": f"{kind}\n" for n, kind in enumerate(("DMA-FQ", "identity", "DMA-FQ"))
    }
    files["proc/cmdline"] = "BOOT_IMAGE=/vmlinuz root=UUID=1 intel_iommu=on iommu=pt quiet\n"
    root = bridges(tree(tmp_path, files), _01=config(0x1D), _02=config(0x01), _03=config(None))
    seen = look("isolation", root)
    assert seen.unseen == []
    assert seen.facts == {
        "iommu": True,
        "types": ["DMA-FQ", "identity"],
        "options": ["intel_iommu=on", "iommu=pt"],
        "bridges": 3,
        "redirecting": ["0000:01:00.0"],
    }


def test_acs_is_not_seen_without_root(tmp_path: Path) -> None:
    seen = look("isolation", bridges(tmp_path, _01=config(0x1D)[:64]))
    assert {(entry["what"], entry["why"]) for entry in seen.unseen} == {("acs", "root"), ("iommu", "absent")}
    assert "redirecting" not in seen.facts and seen.facts["iommu"] is None


def test_a_damaged_configuration_ends(tmp_path: Path) -> None:
    """Its list of capabilities leads to itself, and behind the end."""
    circle = bytearray(config(None))
    circle[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")
    behind = bytearray(config(None))
    behind[0x100:0x104] = (0x0001 | 0xFFC << 20).to_bytes(4, "little")
    assert look("isolation", bridges(tmp_path, _01=bytes(circle), _02=bytes(behind))).facts["redirecting"] == []


def test_addresses_of_ipv6_that_others_reach(tmp_path: Path) -> None:
    lines = [
        "00000000000000000000000000000001 01 80 10 80       lo",
        "20010db8000000000000000000000007 02 40 00 80     eth0",
        "fe800000000000000000000000000001 02 40 20 80     eth0",
        "nonsense 02 40 00 80 eth1",
    ]
    seen = look("network", tree(tmp_path, {"proc/net/if_inet6": "\n".join(lines) + "\n"}))
    assert seen.facts["ipv6"] == [{"name": "eth0", "address": "2001:db8::7"}]


def test_devices_on_the_bus(tmp_path: Path) -> None:
    base = "sys/bus/pci/devices"
    link = {"current_link_speed": "16.0 GT/s PCIe\n", "max_link_speed": "32.0 GT/s PCIe\n", "current_link_width": "8\n"}
    link |= {"max_link_width": "16\n", "aer_dev_nonfatal": "Undefined 0\nCmplto 2\nTOTAL_ERR_NONFATAL 2\n"}
    files = {f"{base}/0000:C1:00.0/{name}": text for name, text in link.items()}
    for address, vendor, code in (
        ("0000:C1:00.0", "0x10de", "0x030200"),
        ("0000:05:00.0", "0x10de", "0x068000"),
        ("0000:06:00.0", "0x15b3", "0x020700"),
        ("0000:07:00.0", "0x1a03", "0x030000"),  # the display of a server's management
        ("0000:08:00.0", "0x8086", "0x060400"),
    ):
        files |= {f"{base}/{address}/vendor": f"{vendor}\n", f"{base}/{address}/class": f"{code}\n"}
    found = look("pci", tree(tmp_path, files)).facts
    assert [(one["address"], one["kind"]) for one in found] == [
        ("0000:05:00.0", "switch"),
        ("0000:06:00.0", "nic"),
        ("0000:c1:00.0", "gpu"),
    ]
    assert {key: found[2][key] for key in ("speed", "max_speed", "width", "max_width", "nonfatal", "fatal")} == {
        "speed": 16.0,
        "max_speed": 32.0,
        "width": 8,
        "max_width": 16,
        "nonfatal": 2,
        "fatal": None,
    }


def test_the_tightest_limit_of_a_cgroup_of_either_version(tmp_path: Path) -> None:
    base = "sys/fs/cgroup"
    two = {
        "proc/self/cgroup": "0::/pod/job\n",
        f"{base}/cgroup.controllers": "memory pids\n",
        f"{base}/pod/memory.max": "1073741824\n",
        f"{base}/pod/memory.current": "1000000000\n",
        f"{base}/pod/memory.events": "low 0\noom 3\noom_kill 2\n",
        f"{base}/pod/job/memory.max": "max\n",
        f"{base}/pod/job/pids.max": "512\n",
        f"{base}/pod/job/pids.current": "500\n",
    }
    found = look("limits", tree(tmp_path / "two", two)).facts["cgroup"]
    assert found == {
        "version": 2,
        "memory_max": 1 << 30,
        "memory_used": 1_000_000_000,
        "oom_kills": 2,
        "pids_max": 512,
        "pids_used": 500,
    }
    one = {
        "proc/self/cgroup": "9:pids:/job\n4:cpu,memory:/job\n",
        f"{base}/memory/memory.limit_in_bytes": "9223372036854771712\n",
        f"{base}/memory/job/memory.limit_in_bytes": "2147483648\n",
        f"{base}/memory/job/memory.usage_in_bytes": "5\n",
        f"{base}/memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        f"{base}/pids/job/pids.max": "max\n",
    }
    found = look("limits", tree(tmp_path / "one", one)).facts["cgroup"]
    assert (found["version"], found["memory_max"], found["memory_used"], found["oom_kills"]) == (1, 2 << 30, 5, 1)
    assert found["pids_max"] is None


def test_faults_in_the_kernels_log(tmp_path: Path) -> None:
    log = (
        "Mar  3 10:15:02 node7 kernel: NVRM: Xid (PCI:0000:C1:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
        "Mar  3 10:15:03 node7 kernel: nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 12028, Non-fatal, Link 38\n"
        "Mar  3 10:15:04 node7 kernel: Out of memory: Killed process 8812 (pt_main_thread) total-vm:1kB\n"
        "Mar  3 10:15:05 node7 kernel: NVRM: loading\n"
    )
    seen = look("kernel", tree(tmp_path, {"var/log/kern.log": log}))
    assert seen.facts["source"] == "/var/log/kern.log"
    [xid] = seen.facts["xids"]
    assert (xid["address"], xid["code"]) == ("0000:c1:00", 79)
    assert "fallen off" in xid["text"]
    assert [one["code"] for one in seen.facts["switch_errors"]] == [12028]
    assert [one["process"] for one in seen.facts["killed"]] == ["pt_main_thread"]


def test_the_kernels_own_buffer_has_times(tmp_path: Path) -> None:
    # A regular file ends where the device would have nothing more to say.
    record = "4,1234,5000000,-;NVRM: Xid (PCI:0000:01:00): 48, DBE\n SUBSYSTEM=pci\n"
    seen = look("kernel", tree(tmp_path, {"dev/kmsg": record, "proc/uptime": "100.0 1.0\n"}))
    assert seen.facts["source"] == "/dev/kmsg"
    [xid] = seen.facts["xids"]
    import time

    assert abs(time.time() - 95 - xid["time"]) < 60


def test_hints_of_a_firewall(tmp_path: Path) -> None:
    files = {
        "etc/ufw/ufw.conf": "# comment\nENABLED=yes\n",
        "proc/77/comm": "firewalld\n",
        "proc/net/ip_tables_names": "nat\nfilter\n",
    }
    seen = look("firewall", tree(tmp_path, files))
    assert seen.facts["filters"] == ["ufw", "firewalld", "iptables"]
    assert look("firewall", tree(tmp_path / "none", {"proc/1/comm": "init\n"})).facts["filters"] == []


def test_variables_of_communication_and_no_others(tmp_path: Path) -> None:
    files = {"etc/nccl.conf": "# site\nNCCL_IB_HCA = mlx5\nAWS_SECRET=x\n", "home/u/.nccl.conf": "NCCL_DEBUG=INFO\n"}
    environment = {
        "NCCL_DEBUG": "WARN",
        "NCCL_TRIAGE_LANG": "zh",
        "API_TOKEN": "secret",
        "MASTER_ADDR": "10.0.0.1",
        "HOME": "/home/u",
    }
    seen = look("environment", tree(tmp_path, files), environment=environment)
    assert seen.facts == {
        "variables": {"MASTER_ADDR": "10.0.0.1", "NCCL_DEBUG": "WARN"},
        "files": {"/home/u/.nccl.conf": {"NCCL_DEBUG": "INFO"}, "/etc/nccl.conf": {"NCCL_IB_HCA": "mlx5"}},
    }


def test_file_systems_once_each_and_those_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    seen = look("storage", tmp_path, paths=("/nowhere",), timeout_factor=10.0)
    assert [one["path"] for one in seen.facts] == ["/"]
    assert seen.facts[0]["size"] > seen.facts[0]["free"] > 0
    assert seen.unseen == [
        {"what": "storage", "why": "absent", "path": "/nowhere", "error": "No such file or directory"}
    ]


def test_a_file_system_that_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from nccl_triage.doctor.probes import limits

    released = threading.Event()
    ask = limits._ask_file_system

    def slow(root: Path, path: str, found: Any) -> None:
        if path == "/data":
            released.wait(60)
        ask(root, path, found)

    monkeypatch.setattr(limits, "_ask_file_system", slow)
    seen = look("storage", tmp_path, paths=("/data",), timeout_factor=0.1)
    released.set()
    assert {"path": "/data", "hangs": True} in seen.facts


def test_the_driver_of_a_host_whose_library_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.86.10  Wed Jul 26 23:20:03 UTC 2023\n"
    files = {"proc/driver/nvidia/version": version, "dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": ""}
    files |= {"dev/nvidia-nvswitch0": "", "dev/nvidia-nvswitchctl": "", "proc/9/comm": "nv-fabricmanage\n"}
    seen = look("gpus", tree(tmp_path, files))
    assert seen.facts["driver"]["module"] == "535.86.10"
    assert (seen.facts["devices"], seen.facts["switches"], seen.facts["manager"]) == (2, 1, True)
    assert seen.facts["gpus"] == []
    assert "gpus" in {entry["what"] for entry in seen.unseen}


@pytest.mark.parametrize("name", [name for group in GROUPS.values() for name in group if name != "software"])
def test_an_empty_root_breaks_no_probe(name: str, tmp_path: Path) -> None:
    seen = look(name, tmp_path, environment={})
    assert seen.facts is not None


@pytest.mark.parametrize("name", ["system", "infiniband", "pci", "firewall", "limits", "environment"])
def test_nonsense_in_every_file_breaks_no_probe(name: str, tmp_path: Path) -> None:
    files = dict.fromkeys((*ib_port("mlx5_0"), "proc/meminfo"), "\x00ÿ;: nonsense 99999999999999999999999\n")
    files |= {f"sys/class/infiniband/mlx5_0/ports/1/gids/{index}": "?\n" for index in ("0", "x")}
    files |= {f"sys/bus/pci/devices/0000:01:00.0/{file}": "0x10de\n" for file in ("vendor", "class")}
    files |= {
        "proc/uptime": "x\n",
        "proc/self/cgroup": ":::\n",
        "etc/nccl.conf": "=\n==\n",
        "etc/os-release": "PRETTY_NAME\n",
    }
    look(name, tree(tmp_path, files), environment={"HOME": "/"})


@pytest.fixture(autouse=True)
def ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run tests as root, who is told other things."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)


@pytest.mark.parametrize(("user", "reasons"), [(1000, ["denied", "root"]), (0, ["refused", "hidden"])])
def test_root_is_not_told_that_it_needs_root(monkeypatch: pytest.MonkeyPatch, user: int, reasons: list[str]) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    seen = ProbeResult({})
    seen.denied("kernel-log", "/dev/kmsg", PermissionError(1, os.strerror(1)))
    seen.miss("acs", "root")
    assert [entry["why"] for entry in seen.unseen] == reasons
    told = [WHY[entry["why"]]["en"].format(**entry) for entry in seen.unseen]
    assert any("without root" in text or "needs root" in text for text in told) == (user != 0)


@pytest.mark.parametrize(("user", "why"), [(1000, "root"), (0, "nft")])
def test_rules_of_packet_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, why: str) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    seen = look("firewall", tree(tmp_path, {"proc/net/ip_tables_names": ""}))
    assert [entry["why"] for entry in seen.unseen] == [why]
