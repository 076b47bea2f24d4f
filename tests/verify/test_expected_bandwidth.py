"""Which bandwidth a run should have had, and what the record says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nccl_triage.verify import bandwidth, record
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, RankTrace, RunFinding, RunResult, Slot
from nccl_triage.verify.judge import Trial

MIB = 1 << 20
H100, A100_PCIE = "NVIDIA H100 80GB HBM3", "NVIDIA A100 80GB PCIe"
BIG = CollectiveMessage("ALLREDUCE", 128 * MIB, "bfloat16")


def interface(name: str, speed: int | None, address: str = "10.0.0.1") -> dict[str, Any]:
    return {
        "name": name,
        "address": address,
        "netmask": "255.255.255.0",
        "mtu": 9000,
        "up": True,
        "loopback": name == "lo",
        "default": False,
        "speed_mbit": speed,
    }


def host(*interfaces: dict[str, Any]) -> dict[str, Any]:
    return {"own_addresses": ["10.0.0.1"], "interfaces": [interface("lo", None, "127.0.0.1"), *interfaces]}


def passed(
    places: tuple[int, ...],
    message: CollectiveMessage = BIG,
    backend: str = "nccl",
    env: Mapping[str, str] | None = None,
    gpu: str = H100,
    shared: bool = False,
    seconds: float = 0.01,
    more: tuple[CollectiveMessage, ...] = (),
) -> RunResult:
    """Return a run that passed, one rank on each of ``places``; ``shared``: all ranks on one GPU."""
    slots = tuple(Slot(rank, place) for rank, place in enumerate(places))
    run = CollectiveRun("run-01", slots, message, backend, env=dict(env or {}), more=more)
    ranks = {}
    for rank, slot in enumerate(slots):
        trace = RankTrace(rank, slot, stage="done", times={"done": 1.0})
        bus = "0000:01:00" if shared else f"0000:{rank:02x}:00"
        trace.details = {"done": {"median": seconds}, "device": {"name": gpu, "bus": bus}}
        trace.parts = [{"op": part.op, "wrong": 0, "median": seconds} for part in more]
        ranks[rank] = trace
    return RunResult(run, "passed", "end", 2.0, ranks)


@pytest.mark.parametrize(
    ("result", "band", "reason"),
    [
        (passed((0,) * 8), "h100-sxm", None),
        (passed((0,) * 4, gpu=A100_PCIE), "a100-pcie", None),
        (passed((0,) * 4, gpu="NVIDIA A40"), None, None),  # the slot's generation is not known
        (passed((0,) * 4, shared=True), None, "share a GPU"),
        (passed((0,) * 8, env={"NCCL_P2P_DISABLE": "1"}), None, "NCCL_P2P_DISABLE"),
        (passed((0,) * 8, env={"NCCL_P2P_DISABLE": "0"}), "h100-sxm", None),
        (passed((0,) * 8, env={"NCCL_NVLS_ENABLE": "0"}), "h100-sxm", None),
        (passed((0,) * 8, env={"NCCL_PROTO": "LL"}), None, "NCCL_PROTO"),
        (passed((0,) * 8, CollectiveMessage("ALLTOALL", 128 * MIB)), None, "ALLTOALL"),
        (passed((0, 1)), None, "network"),
        (passed((0, 1), env={"NCCL_IB_DISABLE": "1"}), "tcp-25", None),
        (passed((0, 1), env={"NCCL_NET": "Socket"}), "tcp-25", None),
        (passed((0, 1), env={"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "eth1"}), None, "speed"),
        (passed((0, 1), backend="gloo", env={"GLOO_SOCKET_IFNAME": "eth0"}), "tcp-25", None),
        (passed((0, 1), backend="gloo", env={"GLOO_SOCKET_IFNAME": "eth1"}), None, "speed"),
        (passed((0, 1), backend="gloo", env={"GLOO_SOCKET_IFNAME": "nosuch0"}), None, "speed"),
        (passed((0, 0), backend="gloo"), None, "loopback"),
        (passed((0, 1), CollectiveMessage("BROADCAST", 1), backend="gloo"), None, "BROADCAST"),
        (passed((0, 2), backend="gloo", env={"GLOO_SOCKET_IFNAME": "eth0"}), None, "speed"),  # a host without facts
    ],
)
def test_the_link_is_told_or_there_is_no_expectation(result: RunResult, band: str | None, reason: str | None) -> None:
    facts = [host(interface("eth0", 25000)), host(interface("eth0", 25000), interface("eth1", None, "10.1.0.1"))]
    if "eth1" not in str(result.run.env):
        facts[1]["interfaces"].pop()
    found, why = bandwidth.band_of(result, facts, result.run.message.op)
    assert (found.id if found else None) == band
    assert (reason is None) == (why is None)
    if reason is not None and why is not None:
        assert reason in why["en"]
        assert why["zh"] != why["en"]


def test_the_slowest_interface_counts_and_ports_add_up() -> None:
    env = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "eth"}
    fast, slow = host(interface("eth0", 25000)), host(interface("eth0", 10000))
    found, _ = bandwidth.band_of(passed((0, 1), env=env), [fast, slow], "ALLREDUCE")
    assert found is not None
    assert found.id == "tcp-10"
    two = host(interface("eth0", 25000), interface("eth1", 25000, "10.1.0.1"))
    double, _ = bandwidth.band_of(passed((0, 1), env=env), [two, two], "ALLREDUCE")
    single, _ = bandwidth.band_of(passed((0, 1), env=env), [two, fast], "ALLREDUCE")
    assert double is not None
    assert single is not None
    assert double.high == 2 * single.high


def test_gloo_is_not_accused_of_the_speed_of_its_cpu() -> None:
    found, _ = bandwidth.band_of(
        passed((0, 1), backend="gloo", env={"GLOO_SOCKET_IFNAME": "eth0"}), [host(interface("eth0", 100000))] * 2, "ALLREDUCE"
    )  # fmt: skip
    assert found is not None
    assert found.low == bandwidth.GLOO_LOW
    slow, _ = bandwidth.band_of(
        passed((0, 1), backend="gloo", env={"GLOO_SOCKET_IFNAME": "eth0"}), [host(interface("eth0", 1000))] * 2, "ALLREDUCE"
    )  # fmt: skip
    assert slow is not None
    assert slow.low < bandwidth.GLOO_LOW


def test_a_slow_run_is_a_notice_and_no_failure() -> None:
    trial = Trial(passed((0,) * 8, seconds=0.005), None)
    made = record.run_record(trial, ["node-a"], [host()], "")
    assert made["outcome"] == "passed"
    assert made["bandwidth"]["busbw"] == pytest.approx(256 * MIB / 0.005 / 1e9 * 1.75, rel=1e-3)
    judged = made["expected"]
    assert judged["state"] == "below"
    assert (judged["low"], judged["high"], judged["source"], judged["basis"]) == (290.0, 500.0, "h100-sxm", "published")
    assert judged["references"][0].startswith("https://")
    assert judged["candidates"][0] == "gpu-nvls-fabricmanager"
    (notice,) = record._notices(made)
    assert notice["run"] == "run-01"
    assert "slower than" in notice["says"]
    assert notice["candidates"] == judged["candidates"]


def test_the_band_is_the_one_for_the_size_of_the_message() -> None:
    made = record.run_record(
        Trial(passed((0,) * 8, CollectiveMessage("ALLREDUCE", 64 * MIB, "bfloat16"), seconds=0.001), None), ["node-a"], [host()], ""
    )  # fmt: skip
    assert made["expected"]["state"] == "in-band"
    assert made["expected"]["low"] == pytest.approx(0.7 * 290)
    assert record._notices(made) == []


def test_every_part_of_a_run_is_judged() -> None:
    parts = (CollectiveMessage("ALLREDUCE", 128 * MIB, "int8"), CollectiveMessage("BARRIER", 1, "float32"))
    made = record.run_record(Trial(passed((0,) * 8, more=parts), None), ["node-a"], [host()], "")
    first, second = made["parts"]
    assert (first["op"], first["dtype"], first["expected"]["state"]) == ("ALLREDUCE", "int8", "below")
    assert first["bandwidth"]["bytes"] == 128 * MIB
    assert second["bandwidth"] is None
    assert len(record._notices(made)) == 2


def test_a_run_in_which_ranks_are_waited_for_says_nothing_of_the_link() -> None:
    late = RunFinding("straggler", "late", {"en": "late", "zh": "晚"}, (3,))
    made = record.run_record(Trial(passed((0,) * 8), late), ["node-a"], [host()], "")
    assert made["bandwidth"] is not None
    assert made["expected"] is None
    assert record._notices(made) == []


def test_tiny_bandwidths_keep_their_digits() -> None:
    result = passed((0, 0), CollectiveMessage("ALLREDUCE", 16, "float32"), backend="gloo", seconds=0.0016715)
    made = record.run_record(Trial(result, None), ["node-a"], [host()], "")
    assert made["bandwidth"]["busbw"] == pytest.approx(3.829e-05)
    assert made["expected"]["state"] == "message-too-small"
    assert made["changed_zh"] is None


def test_why_there_is_no_expectation_is_said_in_both_languages() -> None:
    result = passed((0, 0), CollectiveMessage("ALLREDUCE", 16 * MIB, "float32"), backend="gloo", seconds=0.1)
    judged = record.run_record(Trial(result, None), ["node-a"], [host()], "")["expected"]
    assert judged["state"] == "no-expectation"
    assert judged["says"] == "0.671 GB/s; no expectation: no data left the host (loopback)"
    assert judged["says_zh"] == "0.671 GB/s；没有预期值：数据没有离开本机（回环）"
    assert (judged["low"], judged["source"], judged["candidates"]) == (None, None, [])
