"""Evidence, timeline and excerpts of a document, and evidence that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.checks import names
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from tests.scan_helpers import diagnose_text

RESET = "box7:1:2 [4] misc/socket.cc:484 NCCL WARN socketProgress: Call to recv from 192.168.7.21<46311> failed : Connection reset by peer\n"
OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"


def marks(path: Path) -> list[int]:
    return [mark for excerpt in diagnose(path).to_dict()["excerpts"] for mark in excerpt["marks"]]


def filler(lines: int) -> str:
    return "".join(f"plain line {number}\n" for number in range(lines))


def test_a_failure_of_unknown_cause_shows_its_first_lines(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(filler(30) + RESET + filler(30))
    assert diagnose(log).verdict == "unknown"
    assert marks(log) == [31]


def test_the_first_fault_is_among_the_lines_shown(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(filler(10) + OOM + filler(40) + RESET)
    assert 11 in marks(log)


def test_windows_that_touch_are_one(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(filler(10) + RESET + filler(3) + RESET + filler(10))
    (excerpt,) = diagnose(log).to_dict()["excerpts"]
    assert (excerpt["first_line"], excerpt["marks"], len(excerpt["lines"])) == (7, [11, 15], 13)


@pytest.mark.parametrize("text", ["plain\n", "step 1 loss 2.0\nstep 2 loss 1.9\n"])
def test_nothing_failed_nothing_shown(tmp_path: Path, text: str) -> None:
    log = tmp_path / "a.log"
    log.write_text(text)
    assert marks(log) == []


RANKS = 600


def joined(rank):
    return (
        f"gpu-node-{rank // 8:03d}:{2000 + rank}:{9000 + rank} [{rank % 8}] NCCL INFO ncclCommInitRank comm 0x55d0{rank:08x} "
        f"rank {rank} nranks {RANKS} cudaDev {rank % 8} nvmlDev {rank % 8} busId {rank % 8:x}000 commId 0x9a51c8d4 - Init COMPLETE"
    )


def waited(rank):
    return (
        f"[rank{rank}]:[E822 14:13:00.{rank:06d}093 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=8313, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) "
        f"ran for {600000 + rank} milliseconds before timing out."
    )


def timeline(tmp_path, lines):
    log = tmp_path / "trainer.log"
    log.write_text("\n".join(lines) + "\n", "utf-8")
    return diagnose(log).to_dict()["timeline"]


def test_the_failure_is_told_however_many_ranks_started(tmp_path):
    oom = "[rank7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 7 has a total capacity of 79.15 GiB"
    events = timeline(tmp_path, [*map(joined, range(RANKS)), oom, *(waited(r) for r in range(RANKS) if r != 7)])
    assert len(events) <= 200
    assert (7, "root", RANKS + 1) in {(e["rank"], e["role"], e["line"]) for e in events}
    assert sum(e["role"] == "cascade" for e in events) >= 20
    progress = [e["rank"] for e in events if e["role"] == "progress"]
    assert 0 in progress
    assert RANKS - 1 in progress
    assert [e["order"] for e in events] == list(range(len(events)))
    assert [e["line"] for e in events] == sorted(e["line"] for e in events)


def test_few_events_are_all_told(tmp_path):
    events = timeline(tmp_path, [*map(joined, range(9)), *(waited(r) for r in range(8))])
    assert {e["rank"] for e in events if e["role"] == "progress"} == set(range(9))
    assert {e["rank"] for e in events if e["role"] == "cascade"} == set(range(8))


WATCHDOG = (
    "[rank0]:[E1206 18:44:00.100 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600001 milliseconds "
    "before timing out.\n"
)
USING = "n1:10:10 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"


def missing(text: str, rules: RuleSet) -> set[str]:
    return {item["id"] for item in diagnose_text(text, rules).to_dict()["not_seen"]}


def test_a_bare_time_out_lacks_stacks_the_recorder_and_nccls_report(rules: RuleSet) -> None:
    assert {"nccl-report", "flight-recorder", "stacks"} <= missing(WATCHDOG, rules)


def test_what_is_there_is_not_asked_for(rules: RuleSet) -> None:
    assert "nccl-report" not in missing(USING + WATCHDOG, rules)


def test_a_batch_size_error_asks_for_nothing_of_nccl(rules: RuleSet) -> None:
    text = (
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
        "gradient_acc_step * world_size 256 != 2 * 18 * 7\n"
    )
    assert not {"nccl-report", "flight-recorder", "stacks", "kernel-log"} & missing(text, rules)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD with errorcode 1.\n",
        "Collecting nvidia-nccl-cu12==2.21.5\n",
    ],
)
def test_a_job_without_collectives_is_asked_for_nothing_of_nccl(tmp_path: Path, line: str) -> None:
    log = tmp_path / "a.log"
    log.write_text(
        f"{line}step 1/9 loss 2.0\n2026-03-01 10:00:00 ERROR the run has failed for a reason that nobody knows\n"
    )
    assert "nccl-report" not in {item["id"] for item in diagnose(log).to_dict()["not_seen"]}


def test_times_are_asked_for_where_the_failure_has_none(rules: RuleSet) -> None:
    assert "times" in missing("[rank2]: torch.OutOfMemoryError: CUDA out of memory.\n", rules)
    assert "times" not in missing(WATCHDOG, rules)


def test_missing_evidence_speaks_of_known_signatures_and_facts(rules: RuleSet) -> None:
    from nccl_triage.diagnosis.case import fact_names
    from nccl_triage.producers import produced_signatures

    assert names.check_missing_evidence(rules, fact_names(), produced_signatures()) == []


MISSING = "missing_evidence:\n  - id: mine\n    when: {}\n    what: {{en: a, zh: b}}\n    why: {{en: a, zh: b}}\n"


def test_missing_evidence_of_ones_own_is_checked(tmp_path: Path) -> None:
    folder = tmp_path / "missing_evidence"
    folder.mkdir()
    (folder / "mine.yaml").write_text(MISSING.format("not has('nccl.no_such') and fact('no.such')"))
    found = names.check_missing_evidence(load.load((tmp_path,)), (), {})
    assert {"mine"} <= {finding.rule for finding in found}
    assert any("'nccl.no_such'" in finding.message for finding in found)
    assert any("'no.such'" in finding.message for finding in found)


@pytest.mark.parametrize(
    ("text", "where"),
    [(MISSING.format("has("), ":3"), (MISSING.format("has('nccl.*')") * 1 + "  - id: mine\n", ":6")],
)
def test_broken_missing_evidence_is_told_with_its_line(tmp_path: Path, text: str, where: str) -> None:
    (tmp_path / "missing_evidence").mkdir()
    (tmp_path / "missing_evidence" / "mine.yaml").write_text(text)
    with pytest.raises(RuleError) as caught:
        load.load((tmp_path,))
    assert where in str(caught.value)
