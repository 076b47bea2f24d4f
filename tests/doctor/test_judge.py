"""Every check of the rules: what makes it fail, warn or remark, and that a host in good order has none of it."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.doctor import checks
from nccl_triage.doctor.checks import CheckResult, judge
from tests.doctor.hosts import GIB, LO, facts, gpu, interface, port

CHECKS, _ = checks.shipped()
XID = {"address": "0000:01:00", "code": 79, "time": 1.0, "text": "GPU has fallen off the bus."}

#: A host that others reach by IPv6 alone.
SIX = {
    "network__interfaces": [LO],
    "network__ipv6": [{"name": "eth0", "address": "2001:db8::7"}],
    "names__addresses": [],
    "names__ipv6": ["2001:db8::7"],
}


def results(**changes: Any) -> dict[str, list[CheckResult]]:
    found: dict[str, list[CheckResult]] = {}
    for result in judge(facts(**changes), CHECKS):
        found.setdefault(result.check.id, []).append(result)
    return found


def roce(**changes: Any) -> dict[str, Any]:
    gid = {"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001", "type": "RoCE v2", "interface": "eth0"}
    return port("mlx5_0", **{"link": "Ethernet", "lid": 0, "subnet_manager": 0, "gids": [gid], **changes})


def test_a_host_in_good_order_has_nothing_but_fine_checks() -> None:
    found = judge(facts(), CHECKS)
    assert [(one.check.id, one.says["en"]) for one in found if one.state != "ok"] == []
    fine = {one.check.id: one.says for one in found}
    assert fine["driver-minimum"]["en"] == "driver 550.54.15 (minimum 535.104.05)"
    assert fine["gpus-missing"]["zh"] == "2 块 GPU：2 x NVIDIA H100 80GB HBM3"
    assert fine["nccl-interface"]["en"].startswith("NCCL would use eth0 (10.0.0.1): NCCL_SOCKET_IFNAME is not set")


#: check -> (state, changes, what the text says).
CASES: list[tuple[str, str, dict[str, Any], str]] = [
    ("driver-not-answering", "failed", {"gpus__driver__problem": "NVML: gone"}, "NVML: gone"),
    ("driver-library", "failed", {"gpus__driver__library": "560.35.03"}, "560.35.03"),
    ("driver-minimum", "failed", {"gpus__driver__module": "535.86.10"}, "535.86.10 is older"),
    ("driver-cuda", "failed", {"gpus__driver__cuda": "11.8"}, "CUDA 11.8; torch is built for 12.4"),
    ("driver-cuda", "note", {"gpus__driver__cuda": "12.2"}, "12.2"),
    ("torch-without-cuda", "failed", {"software__cuda": None}, "without CUDA"),
    ("nccl-minimum", "failed", {"software__nccl": "2.14.3"}, "2.14.3"),
    ("nccl-copies", "failed", {"software__libraries": ["/a/libnccl.so.2", "/b/libnccl.so.2"]}, "/b/libnccl.so.2"),
    (
        "nccl-copies",
        "warning",
        {"software__wheels": {"nvidia-nccl-cu11": "2.19.3", "nvidia-nccl-cu12": "2.21.5"}},
        "cu11",
    ),
    ("gpus-missing", "failed", {"gpus__gpus": [gpu(0)], "gpus__devices": 2}, "2 GPUs are on the PCI bus"),
    ("gpus-missing", "warning", {"gpus__gpus": [gpu(0)], "gpus__devices": 1}, "the driver shows 1"),
    ("gpu-fault", "failed", {"gpus__gpus__0": gpu(0, fault="lost")}, "lost"),
    ("gpu-recovery", "failed", {"gpus__gpus__0": gpu(0, recovery_action="gpu-reset")}, "gpu-reset"),
    ("gpu-ecc", "failed", {"gpus__gpus__1": gpu(1, ecc_uncorrected=4)}, "4 uncorrectable"),
    ("gpu-remap", "failed", {"gpus__gpus__0": gpu(0, remap_failure=True)}, "memory repair"),
    ("gpu-remap", "warning", {"gpus__gpus__0": gpu(0, remap_pending=True)}, "awaits a reset"),
    ("gpu-retired", "failed", {"gpus__gpus__0": gpu(0, retired_pages=64)}, "64 memory pages"),
    ("gpu-retired", "note", {"gpus__gpus__0": gpu(0, retired_pages=2)}, "2 memory pages"),
    ("gpu-temperature", "failed", {"gpus__gpus__0": gpu(0, temperature=92)}, "92 degrees"),
    ("gpu-temperature", "warning", {"gpus__gpus__0": gpu(0, temperature=86)}, "86 degrees"),
    ("gpu-brakes", "warning", {"gpus__gpus__0": gpu(0, brakes=["hw-thermal"])}, "hw-thermal"),
    ("gpu-pcie-width", "warning", {"gpus__gpus__0": gpu(0, pcie_width=8)}, "8 of 16 lanes"),
    ("gpu-mig", "warning", {"gpus__gpus__0": gpu(0, mig=True)}, "MIG is on"),
    ("nvlink-down", "failed", {"gpus__gpus__0__nvlinks__5__active": False}, "NVLinks 5 of 18"),
    ("nvlink-down", "warning", {"gpus__gpus__0": gpu(0, nvlinks=[{"link": 0, "active": False}])}, "of 1 are down"),
    ("nvlink-errors", "note", {"gpus__gpus__0__nvlinks__5__errors": {"replay": 3}}, "3 errors"),
    ("nvlink-errors", "warning", {"gpus__gpus__0__nvlinks__5__errors": {"crc_flit": 5000}}, "5000 errors"),
    ("p2p", "warning", {"gpus__pairs__0__read": "chipset-not-supported"}, "0-1 (chipset-not-supported)"),
    ("fabric-manager", "failed", {"gpus__gpus__1__fabric": "in-progress"}, "GPU 1"),
    (
        "fabric-manager",
        "failed",
        {"gpus__manager": False, "gpus__gpus": [gpu(0, fabric=None), gpu(1, fabric=None)]},
        "running: False",
    ),
    ("xid", "failed", {"kernel__xids": [XID, XID]}, "Xid 79, 2 times"),
    ("xid", "warning", {"kernel__xids": [{**XID, "code": 63}]}, "Xid 63"),
    ("xid", "note", {"kernel__xids": [{**XID, "code": 31}]}, "Xid 31"),
    ("switch-error", "warning", {"kernel__switch_errors": [{**XID, "code": 12028}]}, "12028"),
    ("kernel-kills", "warning", {"kernel__killed": [{"process": "pt_main", "time": 1.0}]}, "pt_main"),
    ("bus-width", "warning", {"pci__2__width": 8}, "8 of 16 lanes"),
    ("bus-errors", "warning", {"pci__0__nonfatal": 3}, "3 non-fatal"),
    ("nccl-interface", "failed", {"network__interfaces__1": interface("docker0", "172.17.0.1")}, "docker0"),
    ("nccl-interface", "warning", {"network__interfaces": [LO]}, "only lo"),
    (
        "nccl-interface",
        "warning",
        {"network__interfaces": [LO, interface("eth0", "10.0.0.1"), interface("br-0a1b2c", "172.18.0.1")]},
        "br-0a1b2c",
    ),
    ("nccl-interface", "failed", {"environment__variables": {"NCCL_SOCKET_IFNAME": "ib"}}, "NCCL_SOCKET_IFNAME=ib"),
    (
        "nccl-interfaces-several",
        "note",
        {"network__interfaces": [LO, interface("eth0", "10.0.0.1"), interface("eth1", "10.1.0.1")]},
        "2 interfaces",
    ),
    ("gloo-interface", "warning", {"names__addresses": ["127.0.1.1"]}, "lo (127.0.0.1)"),
    ("hostname-loopback", "warning", {"names__addresses": ["127.0.1.1"]}, "127.0.1.1"),
    ("hostname-unknown", "warning", {"names__addresses": []}, "no IPv4 address"),
    ("ipv6-only", "note", SIX, "only IPv6: eth0 (2001:db8::7)"),
    ("ipv6-only", "warning", {**SIX, "names__ipv6": ["::1"]}, "IPv6 addresses of its name"),
    ("ipv6-family", "failed", {**SIX, "environment__variables": {"NCCL_SOCKET_FAMILY": "AF_INET"}}, "=AF_INET"),
    ("pci-acs", "warning", {"isolation__redirecting": ["0000:00:01.0"]}, "ACS on 1 of 4 PCI bridges"),
    ("pci-acs", "note", {"isolation__redirecting": ["0000:00:01.0"], "pci__0__kind": "nic"}, "0000:00:01.0"),
    ("iommu", "note", {"isolation__types": ["DMA-FQ", "identity"]}, "type DMA-FQ; kernel options: iommu=pt"),
    ("hostname-foreign", "warning", {"names__addresses": ["10.9.9.9"]}, "10.9.9.9"),
    ("resolver-slow", "warning", {"names__seconds": 5.01}, "5.01 s"),
    ("interface-down", "note", {"network__interfaces__1__up": False}, "is down"),
    ("interface-errors", "warning", {"network__interfaces__1__errors": 5000}, "5000 receive or send errors"),
    ("interface-flaps", "warning", {"network__interfaces__1__carrier_changes": 50}, "50 times"),
    ("ib-port", "failed", {"infiniband__ports__0": port("mlx5_0", state="init")}, "is init"),
    ("ib-port", "warning", {"infiniband__ports__0": port("mlx5_0", state="down", physical="polling")}, "polling"),
    ("ib-rate", "warning", {"infiniband__ports__0": port("mlx5_0", width=1, rate=100.0)}, "x1 instead of the usual x4"),
    ("ib-errors", "note", {"infiniband__ports__0": port("mlx5_0", counters={"symbol_error": 7})}, "symbol_error 7"),
    ("ib-errors", "warning", {"infiniband__ports__0": port("mlx5_0", counters={"link_downed": 70})}, "link_downed 70"),
    ("ib-subnet-manager", "failed", {"infiniband__ports__0": port("mlx5_0", lid=0)}, "LID 0"),
    (
        "roce-gid",
        "warning",
        {"infiniband__ports": [roce(gids=[{"index": 0, "gid": "fe80::1", "type": "RoCE v1"}])]},
        "RoCE v1",
    ),
    (
        "roce-gid",
        "failed",
        {"infiniband__ports": [roce()], "environment__variables": {"NCCL_IB_GID_INDEX": "5"}},
        "NCCL_IB_GID_INDEX is 5",
    ),
    ("ib-ports", "warning", {"infiniband__ports": [port("mlx5_0", state="down")]}, "None of 1"),
    ("ib-verbs", "failed", {"infiniband__verbs": False}, "uverbs"),
    ("gpudirect", "note", {"infiniband__peer_memory": False}, "nvidia_peermem"),
    ("firewall", "note", {"firewall__filters": ["ufw"]}, "ufw"),
    ("shm", "failed", {"limits__shm": {"size": 64 << 20, "free": 1 << 20}}, "64 MiB, 1 MiB free"),
    ("shm", "warning", {"limits__shm": {"size": 64 << 20, "free": 60 << 20}}, "64 MiB, 60 MiB free"),
    ("memlock", "failed", {"limits__memlock": {"soft": 65536, "hard": 65536}}, "64 KiB"),
    ("memlock", "note", {"limits__memlock": {"soft": 65536, "hard": 65536}, "infiniband__ports": []}, "64 KiB"),
    ("nofile", "failed", {"limits__nofile": {"soft": 1024, "hard": 4096}}, "1024 files (ulimit -n; hard limit 4096)"),
    ("nofile", "note", {"limits__nofile": {"soft": 20000, "hard": 20000}}, "20000 files"),
    ("processes", "warning", {"limits__cgroup__pids_used": 9000}, "9000 of at most 10000"),
    ("cgroup-memory", "warning", {"limits__cgroup__memory_used": 511 * GIB}, "511 GiB"),
    ("cgroup-kills", "warning", {"limits__cgroup__oom_kills": 3}, "3 processes"),
    ("disk", "failed", {"storage__0__free": 4096}, "4 KiB of"),
    ("disk", "warning", {"storage__0__free": 512 << 20}, "512 MiB of"),
    ("disk-inodes", "warning", {"storage__0__inodes_free": 0.001}, "0 % of its inodes"),
    ("disk-hangs", "failed", {"storage__0": {"path": "/data", "hangs": True}}, "does not respond"),
    ("disk-read-only", "note", {"storage__0__read_only": True}, "read-only"),
    ("clock", "note", {"clock__synchronised": False}, "clock"),
    ("variable", "warning", {"environment__variables": {"NCCL_IB_HAC": "mlx5_0"}}, "NCCL_IB_HCA"),
    ("variable", "note", {"environment__variables": {"NCCL_IB_DISABLE": "1"}}, "test, not a fix"),
]


@pytest.mark.parametrize(
    ("check", "state", "changes", "says"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_is_wrong_is_said(check: str, state: str, changes: dict[str, Any], says: str) -> None:
    [found] = [one for one in results(**changes)[check] if one.state != "ok"]
    assert found.state == state
    assert says in found.says["en"]
    assert found.says["zh"]
    assert found.do["en"] and found.do["zh"]
    assert "{" not in "".join([*found.says.values(), *found.do.values()])


def test_every_check_and_each_of_its_states_is_tried() -> None:
    tried = {(check, state) for check, state, _, _ in CASES}
    assert {(check.id, state) for check in CHECKS.values() for state, _ in check.states} == tried


@pytest.mark.parametrize("part", list(facts()))
def test_what_was_not_seen_is_not_judged(part: str) -> None:
    seen = facts()
    del seen[part]
    assert [one.check.id for one in judge(seen, CHECKS) if one.state == "failed"] == []
    seen[part] = None
    assert [one.check.id for one in judge(seen, CHECKS) if one.state == "failed"] == []


def test_ports_that_the_job_leaves_out_are_not_judged() -> None:
    off = {"NCCL_IB_DISABLE": "1"}
    found = results(infiniband__ports__0=port("mlx5_0", state="down"), environment__variables=off)
    assert "ib-port" not in found


def test_files_of_nccl_count_where_the_environment_is_silent() -> None:
    files = {"/home/u/.nccl.conf": {"NCCL_SOCKET_IFNAME": "eth1"}, "/etc/nccl.conf": {"NCCL_SOCKET_IFNAME": "lo"}}
    [found] = results(environment__files=files)["nccl-interface"]
    assert "NCCL_SOCKET_IFNAME=eth1" in found.says["en"]
    [found] = results(environment__files=files, environment__variables={"NCCL_SOCKET_IFNAME": "eth0"})["nccl-interface"]
    assert found.state == "ok"


def test_the_address_of_the_root_chooses_its_network() -> None:
    two = [LO, interface("eth0", "10.0.0.1"), interface("eth1", "10.1.0.1")]
    [found] = results(network__interfaces=two, environment__variables={"NCCL_COMM_ID": "10.1.0.9:4000"})[
        "nccl-interface"
    ]
    assert "NCCL would use eth1 (10.1.0.1)" in found.says["en"]
    assert "in the network of NCCL_COMM_ID" in found.says["en"]


def test_a_host_of_ipv6_is_not_judged_by_the_rules_of_ipv4() -> None:
    found = results(**SIX)
    assert not {"nccl-interface", "gloo-interface"} & found.keys()
    assert [one for one in found.get("hostname-unknown", []) if one.state != "ok"] == []
