"""A log and the dumps of its ranks: both are used, and the report says whether they agree."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose, messages
from nccl_triage.document.diagnosis import Diagnosis
from nccl_triage.recorder.unpickle import NotPlainError, loads
from tests.recorder import build

GOOD = [("all_reduce", 8)] * 3
WATCHDOG = (
    "[rank{rank}]:[E1122 21:05:16.000000001 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600{rank}00 "
    "milliseconds before timing out.\n"
)


def run(folder: Path, rows: list[Any], log: str = "", world: int = 4) -> Diagnosis:
    for rank, row in enumerate(rows):
        if row is not None:
            document = row if isinstance(row, dict) else build.dump(row, world)
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, 2))
    if log:
        (folder / "train.log").write_text(log)
    return diagnose(folder, model=None)


def culprits(found: Diagnosis) -> list[int | None]:
    return [culprit.rank for culprit in found.candidates[0].culprits]


def notes(found: Diagnosis) -> str:
    assert all(note["zh"] for note in found.notes)
    return " ".join(note["en"] for note in found.notes)


HANGS = [*GOOD, ("all_reduce", 8, "given-up")]


def test_a_mismatch_that_the_log_cannot_show(tmp_path: Path) -> None:
    log = "".join(WATCHDOG.format(rank=rank) for rank in range(4))
    found = run(tmp_path, [[*GOOD, ("all_reduce", 9, "given-up")], HANGS, HANGS, HANGS], log)
    assert found.cause == "collective-mismatch" and found.candidates[0].status == "established"
    assert culprits(found) == [0]
    evidence = found.to_dict()["diagnoses"][0]["evidence"]
    assert evidence[0]["path"].endswith("nccl_trace_rank_0") and evidence[0]["rank"] == 0


def test_log_and_dumps_agree(tmp_path: Path) -> None:
    log = "".join(WATCHDOG.format(rank=rank) for rank in (0, 1, 3))
    log += "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"train.py\", line 3, in main\n[rank2]: KeyError: 'x'\n"
    found = run(tmp_path, [HANGS, HANGS, GOOD, HANGS], log)
    assert found.case.value("recorder.agrees_with_log") == [2]
    assert "agree: both point to rank 2" in notes(found)
    assert culprits(found) == [2]


def test_log_and_dumps_disagree(tmp_path: Path) -> None:
    log = "".join(WATCHDOG.format(rank=rank) for rank in (0, 1, 2))
    log += "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"train.py\", line 3, in main\n[rank3]: KeyError: 'x'\n"
    found = run(tmp_path, [HANGS, GOOD, HANGS, HANGS], log)
    assert found.case.value("recorder.disagrees_with_log") == [1]
    assert "disagree: the dumps point to rank 1" in notes(found)


def test_dumps_do_not_change_what_the_log_itself_says(tmp_path: Path) -> None:
    """Their clock is UTC and the log's is not, and ranks that left a dump are not silent because the log is cut."""
    log = "".join(WATCHDOG.format(rank=rank) for rank in range(3))
    (tmp_path / "log").mkdir()
    (tmp_path / "both").mkdir()
    alone = run(tmp_path / "log", [], log)
    both = run(tmp_path / "both", [GOOD, GOOD, GOOD, GOOD], log)
    assert [event.text for event in alone.case.events] == [event.text for event in both.case.events]
    assert alone.case.value("progress.silent_ranks") == both.case.value("progress.silent_ranks")
    assert alone.case.order_known and both.case.order_known


def test_the_stuck_operation_of_the_report_comes_from_the_dumps(tmp_path: Path) -> None:
    found = run(tmp_path, [HANGS, HANGS, GOOD, HANGS]).to_dict()
    expected = {"op": "ALLREDUCE", "seq": 4, "numel_in": 8, "dtype": "float32", "world_size": 4, "timeout_ms": 600_000}
    assert {name: found["collective"][name] for name in expected} == expected


def test_where_the_ranks_stand_is_told(tmp_path: Path) -> None:
    found = run(tmp_path, [HANGS, HANGS, [*GOOD[:2], ("broadcast", 8)], HANGS])
    found = run(tmp_path, [HANGS, HANGS, GOOD, HANGS])
    says = found.to_dict()["diagnoses"][0]["evidence"][0]["says"]
    assert "train_all_reduce.py:4 step" in says and "train_all_reduce.py:3 step" in says


def test_a_hang_that_all_entered_is_the_path_of_the_data(tmp_path: Path) -> None:
    found = run(tmp_path, [HANGS] * 4)
    assert found.case.value("recorder.all_entered") is True
    assert {one.weighed.cause.family for one in found.candidates} <= {"network", "hardware"}
    alive = [*GOOD, ("all_reduce", 8, "scheduled")]
    assert run(tmp_path, [alive] * 4).verdict == "healthy"


def test_late_ranks_by_their_own_clocks(tmp_path: Path) -> None:
    rows = [build.dump(HANGS, 4) for _ in range(4)]
    rows[3]["entries"][-1]["time_created_ns"] += 300_000_000_000
    found = run(tmp_path, rows)
    assert found.case.value("recorder.late_ranks") == [3]
    assert found.cause == "straggler" and culprits(found) == [3]


def test_ranks_without_dumps_are_told(tmp_path: Path) -> None:
    assert "no flight recorder dump of rank 2" in notes(run(tmp_path, [HANGS, HANGS, None, HANGS]))


@pytest.mark.parametrize("data", [b"\x80\x02(", b"\x80\x02}K\x01K\x02u.", b"\x80\x02\x8a\xff", b"lp0", b"\x80\x09.", b"\x80\x02cos\n"])  # fmt: skip
def test_reasons_are_said_in_chinese_too(data: bytes) -> None:
    with pytest.raises(NotPlainError) as refused:
        loads(data)
    said = f"not a flight recorder dump that can be read safely: {refused.value}"
    assert messages.translated_text(said).startswith("不是可以安全读取") and not any("a" <= c <= "z" for c in messages.translated_text(str(refused.value)).replace("pickle", "").replace("0x", ""))  # fmt: skip
