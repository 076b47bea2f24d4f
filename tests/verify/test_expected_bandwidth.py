"""Which bandwidth a run should have had, and what the record says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nccl_triage.verify import expected_bandwidth, record
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, RankTrace, RunFinding, RunResult, Slot
from nccl_triage.verify.judge import Trial
from nccl_triage.verify.transport import Transport

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
    found, why = expected_bandwidth.band_of(result, facts, result.run.message.op)
    assert (found.id if found else None) == band
    assert (reason is None) == (why is None)
    if reason is not None and why is not None:
        assert reason in why["en"]
        assert why["zh"] != why["en"]


IB = {rank: {"adapters": {0: "mlx5_0:1", 1: "mlx5_1:1", 2: "mlx5_2:1"}} for rank in range(4)}
SOCKETS = {rank: {"sockets": {0: "eth0", 1: "eth1"}} for rank in range(4)}
BETWEEN = frozenset({(0, 2, "NET/IB"), (2, 0, "NET/IB"), (0, 1, "P2P"), (2, 3, "P2P")})


def took(*networks: str, via: tuple[str, ...] = (), **told: Any) -> Transport:
    """Return what NCCL took: its networks, and links between ranks 0 and 1."""
    return Transport(networks, links=frozenset((0, 1, kind) for kind in via), **told)


@pytest.mark.parametrize(
    ("places", "taken", "env", "band", "reason"),
    [
        ((0, 1), took("Socket", devices=SOCKETS, used={0: {0}, 1: {0}}), {}, "tcp-25", None),
        ((0, 1), took("Socket", devices=SOCKETS, used={0: {1}, 1: {1}}), {}, "tcp-100", None),
        ((0, 1), took("Socket", devices=SOCKETS, used={0: {1}, 1: {1}}), {"NCCL_IB_DISABLE": "0"}, "tcp-100", None),
        ((0, 1), took("IB", devices=IB, used={0: {1}, 1: {1}}), {}, "ib-400", None),
        ((0, 1), took("IBext_v8", devices=IB, used={0: {1}, 1: {1}}), {}, "ib-400", None),
        ((0, 1), took("IB", devices=IB, used={0: {2}, 1: {2}}), {}, None, "rate of the adapters"),
        ((0, 1), took("IB"), {}, None, "rate of the adapters"),
        ((0, 1), took("AWS Libfabric"), {}, None, "AWS Libfabric"),
        ((0, 1), took("Socket", "IB"), {}, None, "different networks: Socket, IB"),
        ((0, 1), took("IB", via=("P2P",)), {}, "h100-pair", None),  # NVLink between the hosts
        ((0,) * 8, took("Socket", via=("P2P",)), {}, "h100-sxm", None),
        ((0,) * 8, took("Socket", via=("SHM",)), {}, "h100-sxm", None),  # what it could have been
        ((0,) * 8, took("Socket", via=("SHM",)), {"NCCL_P2P_DISABLE": "1"}, None, "NCCL took SHM"),
        ((0,) * 8, took("Socket", via=("NET/Socket",)), {}, None, "inside the host"),
        ((0,) * 8, took("IB", via=("P2P",)), {"NCCL_ALGO": "Ring"}, None, "NCCL_ALGO"),
    ],
)
def test_the_band_is_that_of_the_link_which_was_taken(
    places: tuple[int, ...], taken: Transport, env: dict[str, str], band: str | None, reason: str | None
) -> None:
    result = passed(places, env=env)
    result.transport = taken
    each = host(interface("eth0", 25000), interface("eth1", 100000, "10.1.0.1"))
    each["adapters"] = {"mlx5_0:1": 400.0, "mlx5_1:1": 400.0}
    found, why = expected_bandwidth.band_of(result, [each, each], "ALLREDUCE")
    assert (found.id if found else None) == band
    assert (reason is None) == (why is None)
    if reason is not None and why is not None:
        assert reason in why["en"] and why["zh"] != why["en"]


def test_the_ports_of_all_ranks_of_a_host_carry_the_group() -> None:
    one, two = ({rank: {rank % ports} for rank in range(4)} for ports in (1, 2))
    bands = []
    for used in (one, two):
        result = passed((0, 0, 1, 1))
        result.transport = Transport(("IB",), IB, used, BETWEEN)
        each = {**host(), "adapters": {"mlx5_0:1": 400.0, "mlx5_1:1": 200.0}}
        band, _ = expected_bandwidth.band_of(result, [each, each], "ALLREDUCE")
        assert band is not None
        bands.append(band)
    assert [band.id for band in bands] == ["ib-400", "ib-200"], "the slowest of them counts"
    single, _ = expected_bandwidth.band_of(passed((0, 1)), [], "ALLREDUCE")
    assert single is None
    known = expected_bandwidth.expectation("", "ib 200", 4)
    assert known is not None and bands[1].high == 2 * known.high


@pytest.mark.parametrize("adapters", [None, "many", {"mlx5_0:1": "400"}, {"mlx5_0:1": -1}, {}])
def test_what_a_host_says_of_its_adapters_may_be_anything(adapters: Any) -> None:
    result = passed((0, 1))
    result.transport = took("IB", devices=IB, used={0: {0}, 1: {0}})
    band, why = expected_bandwidth.band_of(result, [{**host(), "adapters": adapters}] * 2, "ALLREDUCE")
    assert band is None and why is not None and "rate of the adapters" in why["en"]


def test_the_record_has_what_was_taken_and_each_size() -> None:
    result = passed((0, 0))
    result.transport = took("IB", via=("P2P", "SHM"), devices=IB, used={0: {0}, 1: {2}}, gpudirect=True)
    for trace in result.ranks.values():
        trace.sizes = [{"numel": 4, "median": 1e-5 * (1 + trace.rank), "wrong": trace.rank}]
    made = record.run_record(Trial(result, None), ["node-a"], [host()], "")
    assert made["transport"] == {
        "networks": ["IB"],
        "devices": ["mlx5_0:1", "mlx5_2:1"],
        "links": {"P2P": 1, "SHM": 1},
        "gpudirect": True,
    }
    assert made["sweep"] == [{"bytes": 8.0, "median_s": 2e-05, "algbw": 0.0004, "busbw": 0.0004, "wrong": 1}]


def test_the_slowest_interface_counts_and_ports_add_up() -> None:
    env = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "eth"}
    fast, slow = host(interface("eth0", 25000)), host(interface("eth0", 10000))
    found, _ = expected_bandwidth.band_of(passed((0, 1), env=env), [fast, slow], "ALLREDUCE")
    assert found is not None
    assert found.id == "tcp-10"
    two = host(interface("eth0", 25000), interface("eth1", 25000, "10.1.0.1"))
    double, _ = expected_bandwidth.band_of(passed((0, 1), env=env), [two, two], "ALLREDUCE")
    single, _ = expected_bandwidth.band_of(passed((0, 1), env=env), [two, fast], "ALLREDUCE")
    assert double is not None
    assert single is not None
    assert double.high == 2 * single.high


def test_gloo_is_not_accused_of_the_speed_of_its_cpu() -> None:
    found, _ = expected_bandwidth.band_of(
        passed((0, 1), backend="gloo", env={"GLOO_SOCKET_IFNAME": "eth0"}), [host(interface("eth0", 100000))] * 2, "ALLREDUCE"
    )  # fmt: skip
    assert found is not None
    assert found.low == expected_bandwidth.GLOO_LOW
    slow, _ = expected_bandwidth.band_of(
        passed((0, 1), backend="gloo", env={"GLOO_SOCKET_IFNAME": "eth0"}), [host(interface("eth0", 1000))] * 2, "ALLREDUCE"
    )  # fmt: skip
    assert slow is not None
    assert slow.low < expected_bandwidth.GLOO_LOW


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
