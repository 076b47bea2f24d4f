"""Where a line comes from: what its collector says, what the process says of itself, and torn names of hosts."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.store import Observations
from nccl_triage.story import line_origins
from nccl_triage.story.line_origins import correct_origins
from tests.scan_helpers import diagnose_text, scan_text

STEP, ERROR = "step {n}/100 loss 2.1", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
NCCL = "{host}:{pid}:{pid} [0] NCCL INFO Using network Socket"
LATE = (
    "[rank{rank}]:[E603 {time}.123456789 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 "
    "milliseconds before timing out."
)


def hosts(found: Observations) -> list[str | None]:
    return [event.context.host for event in correct_origins(found).all_events()]


def lines(*texts: str) -> str:
    return "".join(f"{text}\n" for text in texts)


def test_one_place_of_everything_is_no_host(rules: RuleSet) -> None:
    log = lines(*(f"[pod/train-0/trainer] {text}" for text in (STEP.format(n=1), STEP.format(n=2), ERROR)))
    assert set(hosts(scan_text(log, rules))) == {None}
    found = diagnose_text(log, rules)
    assert found.cause == "gpu-out-of-memory"
    assert any("collected at train-0" in note["en"] for note in found.notes)
    assert not any(culprit.host for culprit in found.candidates[0].culprits)


def test_several_places_are_hosts(rules: RuleSet) -> None:
    log = lines(
        *(f"[pod/train-{n % 2}/trainer] {STEP.format(n=n)}" for n in range(6)), f"[pod/train-1/trainer] {ERROR}"
    )
    assert set(hosts(scan_text(log, rules))) == {"train-0", "train-1"}
    found = diagnose_text(log, rules)
    assert found.candidates[0].culprits[0].host == "train-1"
    assert not any("collected at" in note["en"] for note in found.notes)


def test_a_host_that_the_processes_name_is_the_host_of_their_place(rules: RuleSet) -> None:
    log = lines(*(f"[pod/train-{n % 2}/trainer] {NCCL.format(host=f'gpu0{n % 2}', pid=40 + n % 2)}" for n in range(4)))
    log += lines(f"[pod/train-1/trainer] {ERROR}")
    assert set(hosts(scan_text(log, rules))) == {"gpu00", "gpu01"}
    assert diagnose_text(log, rules).candidates[0].culprits[0].host == "gpu01"


def test_a_name_that_all_places_share_is_no_host(rules: RuleSet) -> None:
    log = lines(*(f"[pod/train-{n % 2}/trainer] {NCCL.format(host='trainer', pid=40 + n % 2)}" for n in range(4)))
    assert set(hosts(scan_text(log, rules))) == {"train-0", "train-1"}


def test_the_kernel_speaks_of_its_host(rules: RuleSet) -> None:
    xid = "Jun  3 09:00:00 gpu07 kernel: [12.5] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    assert "gpu07" in hosts(scan_text(lines(xid), rules))


def test_one_writer_of_everything_is_no_rank(rules: RuleSet) -> None:
    log = lines(*(f"Jun  3 09:00:0{n} gpu07 python3[4711]: {STEP.format(n=n)}" for n in range(3)))
    log += lines(
        "Jun  3 09:00:09 gpu07 python3[4711]: [rank3]: ValueError: x", f"Jun  3 09:00:09 gpu07 python3[4711]: {ERROR}"
    )
    assert {event.context.pid for event in correct_origins(scan_text(log, rules)).all_events()} == {None}
    two = log + log.replace("4711", "4712")
    assert {event.context.pid for event in correct_origins(scan_text(two, rules)).all_events()} == {4711, 4712}


@pytest.mark.parametrize("collector", ["{time}Z stderr F {line}", "Jun  3 {clock} node7 python3: {line}"])
def test_sources_are_put_on_one_clock(collector: str, rules: RuleSet) -> None:
    """A collector in UTC, a program in +08:00: rank 1 failed half an hour before rank 0, whatever the collector writes."""

    def collected(clock: str, line: str) -> str:
        return collector.format(time=f"2025-06-03T{clock}", clock=clock, line=line)

    bare = Observations()
    for name, text in {
        "rank0.log": lines("2025-06-03 09:00:00 INFO begin", LATE.format(rank=0, time="09:40:00")),
        "rank1.log": lines(
            collected("01:00:00", "2025-06-03 09:00:00,000 INFO begin"),
            collected("01:10:00", LATE.format(rank=1, time="09:10:00")),
            collected("01:10:01", "Traceback (most recent call last):"),
            collected("01:10:01", '  File "x.py", line 1, in <module>'),
            collected("01:10:01", "KeyError: 'x'"),
        ),
    }.items():
        bare.absorb(scan_text(text, rules, name))
    found = {
        event.signature: event.context.time
        for event in correct_origins(bare).all_events()
        if event.source == "rank1.log"
    }
    ours = next(event.context.time for event in bare.all_events() if event.source == "rank0.log" and event.is_failure)
    assert ours is not None
    for signature in ("torch.watchdog_timeout", "python.traceback"):
        time = found[signature]
        assert time is not None
        assert ours - time == pytest.approx(1800, abs=2)


def test_two_clocks_are_told(rules: RuleSet) -> None:
    line = "2025-06-03T01:00:0{n}.000Z stderr F 2025-06-03 09:00:0{n},500 INFO step {n}/100 loss 2.1"
    (note,) = [
        n for n in diagnose_text(lines(*(line.format(n=n) for n in range(5))), rules).notes if "two clocks" in n["en"]
    ]
    assert "8 h behind the program's" in note["en"]
    assert "慢 8 小时" in note["zh"]


def said(*hosts: tuple[str, int]) -> list[Event]:
    return [
        Event("nccl.version", "log", n, "", context=Context(host=host, pid=pid))
        for n, (host, pid) in enumerate(hosts, 1)
    ]


def names(events: list[Event]) -> list[str | None]:
    return [event.context.host for event in line_origins.correct_torn_hosts(events)]


WHOLE = [("rack1b0n0", 100), ("rack1b0n1", 200)] * 3


@pytest.mark.parametrize(
    ("name", "pid", "right"),
    [
        ("rack1b0rack1b0n0", 100, "rack1b0n0"),
        ("rack1b0n1rack1b0n0", 100, "rack1b0n0"),
        ("rack1b0n1rack1", 200, None),
        ("0rack1b0n0", 100, "rack1b0n0"),
        ("1b0n1", 200, "rack1b0n1"),
        # Not the same process: a host of which one line is known.
        ("0rack1b0n0", 300, "0rack1b0n0"),
        ("rack1b0n10", 100, "rack1b0n10"),
        ("rack2b0n0", 100, "rack2b0n0"),
    ],
)
def test_a_name_that_ran_into_another_is_mended_or_refused(name: str, pid: int, right: str | None) -> None:
    events = said(*WHOLE, (name, pid))
    assert names(events) == [*(host for host, _ in WHOLE), right]


def test_hosts_of_few_lines_keep_their_names() -> None:
    hosts = ["gpu1", "gpu10", "dgpu1", "trainer-worker-1", "trainer-worker-11", "worker-1"]
    assert names(said(*((host, n) for n, host in enumerate(hosts)))) == hosts
    assert names(said(("node7", 5))) == ["node7"]
