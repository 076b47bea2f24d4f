"""Each subject of the comparison, on pairs of logs that differ in it alone; and what differs by nature."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.baseline import run
from nccl_triage.baseline.run_difference import PRODUCES
from nccl_triage.document.diagnosis import Diagnosis, diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from tests.scan_helpers import scan_text, undeclared

FAILED = (
    "2025-06-03 15:00:00,000 - ERROR - [rank0]: RuntimeError: something unheard of",
    "[rank1]:[E603 14:50:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds "
    "before timing out.",
)


def started(
    *,
    pid: int = 4120,
    host: str = "gpu07",
    address: str = "10.12.0.47",
    iface: str = "eth0",
    adapters: str = "[0]mlx5_0:1/IB [1]mlx5_1:1/IB",
    version: str = "2.21.5+cuda12.4",
    driver: int = 12040,
    settings: tuple[str, ...] = ("NCCL_IB_HCA set by environment to mlx5.",),
    ranks: int = 16,
    channels: int = 24,
    via: str = "NET/IB/0/GDRDMA",
    algorithm: str = "RING",
    pace: float = 2.0,
    steps: int = 20,
    clock: int = 14,
) -> list[str]:
    """Return the lines of a job that starts and makes steps."""
    head = f"{host}:{pid}:{pid + 9} [0] NCCL INFO"
    return [
        f"{head} cudaDriverVersion {driver}",
        *(f"{head} {setting}" for setting in settings),
        f"{head} Bootstrap : Using {iface}:{address}<0>",
        f"{head} NCCL version {version}",
        f"{head} NET/IB : Using {adapters} [RO]; OOB {iface}:{address}<0>",
        f"{head} Using network IB",
        f"{head} ncclCommInitRank comm 0x{pid:x} rank 0 nranks {ranks} cudaDev 0 nvmlDev 0 busId ab000 commId 0x9d{pid:x} - Init START",
        f"{head} comm 0x{pid:x} rank 0 nRanks {ranks} nNodes {ranks // 8} localRanks 8 localRank 0 MNNVL 0",
        f"{head} Channel 00/0 : 0[0] -> 8[0] [send] via {via}",
        f"{head} {channels} coll channels, 0 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer",
        f"{head} ncclCommInitRank comm 0x{pid:x} rank 0 nranks {ranks} cudaDev 0 nvmlDev 0 busId ab000 commId 0x9d{pid:x} - Init COMPLETE",
        f"{head} AllReduce: 8388608 Bytes -> Algo {algorithm} proto SIMPLE channel{{Lo..Hi}}={{0..15}}",
        *(
            f"2025-06-03 {clock}:00:{n:02d},000 - INFO - train - [rank 0/{ranks}] step {n} loss {3 - n / 50:.3f} "
            f"step_time {pace * (1 + n % 3 / 100):.3f}s"
            for n in range(steps)
        ),
    ]  # fmt: skip


def scanned(rules: RuleSet, lines: list[str], path: str) -> Observations:
    return scan_text("\n".join(lines) + "\n", rules, path=path)


def compared(rules: RuleSet, good: list[str], bad: list[str]) -> Diagnosis:
    scan = scanned(rules, bad, "bad.log")
    found = run.against(scanned(rules, good, "good.log"), rules)(scan)
    return diagnose_observations(scan.merge(found), rules)


def told(found: Diagnosis) -> list[tuple[str, str, str | None, str | None]]:
    assert undeclared(found.case.events) == []
    subjects = [
        name for name in PRODUCES if name not in ("baseline.compared", "baseline.divergence", "baseline.message")
    ]
    return [
        (event.signature.partition(".")[2], event.fields["name"], event.fields.get("good"), event.fields.get("bad"))
        for event in found.case.of(*subjects)
    ]


PAIRS: dict[str, tuple[dict[str, object], dict[str, object], tuple[str, str, str | None, str | None]]] = {
    "a variable changed": (
        {}, {"settings": ("NCCL_IB_HCA set by environment to mlx5_2.",)}, ("variable", "NCCL_IB_HCA", "mlx5", "mlx5_2"),
    ),
    "a variable is set": (
        {"settings": ()}, {"settings": ("NCCL_IB_TC set by environment to 106.",)}, ("variable", "NCCL_IB_TC", None, "106"),
    ),
    "a variable is unset": (
        {"settings": ("NCCL_P2P_DISABLE set by environment to 1.",)}, {"settings": ()},
        ("variable", "NCCL_P2P_DISABLE", "1", None),
    ),
    "another NCCL": ({}, {"version": "2.27.3+cuda12.4"}, ("version", "nccl", "2.21.5", "2.27.3")),
    "another driver": ({}, {"driver": 12020}, ("version", "driver-cuda", "12.4", "12.2")),
    "another adapter": (
        {}, {"adapters": "[0]mlx5_2:1/IB"}, ("interface", "adapters", "mlx5_0, mlx5_1", "mlx5_2"),
    ),
    "another network": (
        {}, {"address": "172.17.0.2"}, ("interface", "subnet", "eth0 10.12.0.0/16", "eth0 172.17.0.0/16"),
    ),
    "without GPUDirect": ({}, {"via": "NET/IB/0"}, ("transport", "0 -> 8", "NET/IB GDRDMA", "NET/IB")),
    "fewer channels": ({}, {"channels": 2}, ("topology", "collective channels", "24", "2")),
    "another algorithm": ({}, {"algorithm": "NVLS"}, ("algorithm", "algorithm", "RING", "NVLS")),
    "slower steps": ({}, {"pace": 3.1}, ("pace", "step_time", "2.02", "3.13")),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_what_alone_differs_is_told_alone(
    pair: tuple[dict[str, object], dict[str, object], object], rules: RuleSet
) -> None:
    good, bad, expected = pair
    found = compared(rules, started(**good), [*started(**bad), *FAILED])  # type: ignore[arg-type]
    assert told(found) == [expected]


def test_the_line_lies_in_the_bad_log_and_names_that_of_the_good_one(rules: RuleSet) -> None:
    bad = ["a line before", *started(settings=("NCCL_IB_HCA set by environment to mlx5_2.",)), *FAILED]
    (event,) = compared(rules, started(), bad).case.of("baseline.variable")
    assert (event.source, event.line, event.text) == (
        "bad.log", 3, "[NCCL_IB_HCA: mlx5 (good.log:2) -> mlx5_2]",
    )  # fmt: skip
    assert (event.fields["good_path"], event.fields["good_line"], event.context.rank) == ("good.log", "2", None)


def test_one_host_that_differs_is_named(rules: RuleSet) -> None:
    second = started(pid=5001, host="gpu08", settings=("NCCL_IB_HCA set by environment to mlx5_2.",))
    (event,) = compared(rules, started(), [*started(), *second, *FAILED]).case.of("baseline.variable")
    assert (event.fields["good"], event.fields["bad"], event.context.host) == ("mlx5", "mlx5, mlx5_2", "gpu08")


def test_another_size(rules: RuleSet) -> None:
    found = told(compared(rules, started(), [*started(ranks=8), *FAILED]))
    assert ("world", "ranks", "16", "8") in found
    assert ("world", "nodes", "2", "1") in found


def test_what_differs_by_nature_is_not_told(rules: RuleSet) -> None:
    settings = ("NCCL_DEBUG_FILE set by environment to /tmp/{}.log.", "NCCL_COMM_ID set by environment to 10.12.0.{}:41000.",
                "NCCL_TOPO_FILE set by environment to /jobs/run-{}/topo.xml.")  # fmt: skip
    good = [
        "+ export MASTER_ADDR=10.12.0.47 MASTER_PORT=29500",
        *started(settings=tuple(text.format(17) for text in settings)),
        "2025-06-03 14:40:00,000 - WARNING - cannot write /jobs/run-17/a.txt on gpu07",
    ]
    bad = [
        "+ export MASTER_ADDR=10.12.0.99 MASTER_PORT=31877",
        *started(
            pid=99, host="gpu42", address="10.12.3.9", clock=23, settings=tuple(text.format(99) for text in settings)
        ),
        "2025-06-04 23:40:00,000 - WARNING - cannot write /jobs/run-99/a.txt on gpu42",
        *FAILED,
    ]
    found = compared(rules, good, bad)
    assert told(found) == []
    messages = [event.text for event in found.case.of("baseline.message")]
    assert messages, "what failed is new"
    assert not any("cannot write" in text for text in messages)


def test_silence_is_no_difference(rules: RuleSet) -> None:
    """A run without NCCL_DEBUG=INFO, or one that died before variables are looked up, shows none."""
    quiet = [line for line in started() if " NCCL INFO" not in line]
    assert told(compared(rules, started(), [*quiet, *FAILED])) == []
    assert told(compared(rules, quiet, [*started(), *FAILED])) == []
    assert told(compared(rules, started(), [*started(settings=())[:2], *FAILED])) == []


def test_warnings_before_the_failure_count_most(rules: RuleSet) -> None:
    warning = "2025-06-03 14:59:00,000 - WARNING - the shelf 7 could not be mounted, using the cache"
    found = compared(rules, started(), [*started(), warning, warning.replace("7", "9"), *FAILED])
    first, *others = found.case.of("baseline.message")
    assert (first.text, first.fields["when"]) == (warning.partition("WARNING - ")[2], "before")
    assert all(event.fields["when"] == "after" for event in others)
    (parted,) = found.case.of("baseline.divergence")
    assert (parted.fields["name"], parted.line, parted.text) == ("steps", first.line, first.text)


def test_a_run_that_stops_parts_at_its_last_line(rules: RuleSet) -> None:
    (parted,) = compared(rules, started(), started(steps=0)[:8]).case.of("baseline.divergence")
    assert (parted.fields["name"], parted.line) == ("communicator", 8)
    assert "Init COMPLETE" in parted.fields["good"]


def test_a_run_compared_with_itself(rules: RuleSet) -> None:
    lines = [*started(), *FAILED]
    found = compared(rules, lines, lines)
    assert [event.signature for event in found.case.of("baseline.*")] == ["baseline.compared"]
    assert found.to_dict()["baseline"]["state"] == "failed"


@pytest.mark.parametrize(
    ("good", "state"),
    [
        ([], "empty"),
        (["hello", "world"], "empty"),
        (["INFO 06-02 22:58:31 [loggers.py:116] Engine 000: Avg prompt throughput: 8.5 tokens/s, Avg generation throughput: 2.5 "
          "tokens/s, Running: 64 reqs, Waiting: 0 reqs, GPU KV cache usage: 41.5%, Prefix cache hit rate: 0.0%"], "other"),
    ],
    ids=["nothing", "no known line", "another program"],
)  # fmt: skip
def test_where_no_comparison_is_possible(good: list[str], state: str, rules: RuleSet) -> None:
    found = compared(rules, good, [*started(), *FAILED])
    block = found.to_dict()["baseline"]
    assert (block["state"], block["differences"], block["divergence"]) == (state, [], None)
    assert any("cannot be compared" in note["en"] for note in found.notes)


def test_a_baseline_makes_no_failure_of_a_healthy_log(rules: RuleSet) -> None:
    bad = started(version="2.27.3+cuda12.4", iface="docker0", address="172.17.0.2", via="NET/Socket/0", pace=9.0)
    found = compared(rules, started(), bad)
    assert len(told(found)) > 3
    assert found.verdict == "healthy"
    empty = compared(rules, started(), ["hello"])
    assert empty.verdict == diagnose_observations(scanned(rules, ["hello"], "log"), rules).verdict


def _conditions(rules: RuleSet) -> Iterator[tuple[str, str]]:
    for cause in rules.causes.values():
        for item in cause.evidence:
            if any(name.startswith("baseline.") for name in item.signatures):
                yield f"{cause.id}/{item.id}", "" if item.when is None else str(item.when.literals("fact"))


def test_every_rule_about_a_difference_needs_a_failure(rules: RuleSet) -> None:
    found = dict(_conditions(rules))
    assert len(found) > 15
    assert [
        name for name, facts in found.items() if "job.failed" not in facts and "collective.timeouts" not in facts
    ] == []


def test_a_change_that_fits_the_failure_decides(rules: RuleSet) -> None:
    good = started(settings=("NCCL_SOCKET_IFNAME set by environment to eth0.",))
    eth1 = started(settings=("NCCL_SOCKET_IFNAME set by environment to eth1.",), iface="eth1", address="10.77.9.9")
    unanswered = "gpu07:4120:4388 [2] misc/socket.cc:1042 NCCL WARN socketStartConnect: Connect to 10.77.9.8<41000> failed : Connection timed out"
    bad = [*eth1[:6], unanswered]
    found = compared(rules, good, bad)
    assert found.cause == "network-wrong-interface"
    assert diagnose_observations(scanned(rules, bad, "bad.log"), rules).cause == "network-firewall-port"
    document = found.to_dict()
    changed = [d for d in document["baseline"]["differences"] if "network-wrong-interface" in d["causes"]]
    assert {d["subject"] for d in changed} == {"variable", "interface"}
    assert document["baseline"]["differences"][: len(changed)] == changed, "what speaks for the cause comes first"


LOGS = Path(__file__).parents[2] / "corpus" / "recorded" / "logs"


@pytest.mark.parametrize(
    ("bad", "cause", "subjects"),
    [
        ("nccl_subnets_rejected_w2", "network-unreachable-subnet", {"variable", "interface", "world"}),
        ("nccl_interface_veth_w4", "network-wrong-interface", {"variable", "interface", "version"}),
    ],
)
def test_recorded_runs_against_a_recorded_good_one(bad: str, cause: str, subjects: set[str], rules: RuleSet) -> None:
    def confidence(found: Diagnosis) -> float:
        return next((candidate.confidence for candidate in found.candidates if candidate.id == cause), 0.0)

    log = LOGS / f"{bad}.log"
    alone = diagnose(log, rules=rules, model=None)
    against = diagnose(log, rules=rules, model=None, baseline=LOGS / "nccl_start_two_hosts_w4.log")
    assert confidence(against) > confidence(alone) + 0.1
    assert {subject for subject, *_ in told(against)} == subjects


def test_a_healthy_recorded_run_stays_healthy(rules: RuleSet) -> None:
    found = diagnose(LOGS / "nccl_start_torchrun_w4.log", rules=rules, baseline=LOGS / "nccl_start_two_hosts_w4.log")
    assert (found.verdict, told(found)) == ("healthy", [("version", "nccl", "2.20.5", "2.19.3")])


def test_everything_is_bounded(rules: RuleSet) -> None:
    settings = tuple(f"NCCL_X{number} set by environment to {'v' * 290}." for number in range(300))
    found = compared(rules, started(), [*started(settings=settings), *FAILED])
    block = found.to_dict()["baseline"]
    assert (len(block["differences"]), block["total"]) == (60, 301 + len(found.case.of("baseline.message")))
    assert all(len(difference["bad"] or "") <= 200 for difference in block["differences"])


def test_events_are_told_apart_by_what_differs(rules: RuleSet) -> None:
    kinds: list[Event] = compared(rules, started(), [*started(via="SHM/direct/direct"), *FAILED]).case.of("baseline.*")
    assert all(event.role == "context" and event.signature in PRODUCES for event in kinds)
