"""The marks that traces are made of, and what traces come to."""

from __future__ import annotations

import pytest

from nccl_triage.verify.model import Outcome, RankTrace, Slot
from nccl_triage.verify.traces import first_missing, next_mark, note, outcome_of
from tests.verify.told_runs import KILLED, WAITS, rank


def test_marks_become_a_trace() -> None:
    trace = RankTrace(0, Slot(0, 0))
    assert not note(trace, {"stage": "start", "pid": 1}, 10.5, 10.0)
    assert (trace.stage, trace.times, trace.since) == ("start", {"start": 0.5}, 10.5)
    assert not note(trace, {"stage": "call", "call": "barrier", "message": None}, 11.0, 10.0)
    assert not note(trace, {"stage": "iteration", "done": 20}, 12.0, 10.0)
    assert (trace.stage, trace.since, len(trace.calls)) == ("start", 12.0, 1), "an iteration is a sign of life"
    assert note(trace, {"stage": "error", "type": "X", "text": "y"}, 13.0, 10.0)
    assert (trace.error, trace.done) == ({"stage": "error", "type": "X", "text": "y"}, False)
    assert not note(trace, {"stage": "from-a-later-release"}, 14.0, 10.0)
    assert not note(trace, {"stage": "flight"}, 14.0, 10.0)
    assert trace.flight == []


@pytest.mark.parametrize(
    ("ranks", "outcome"),
    [
        ([rank(0), rank(1)], "passed"),
        ([rank(0), rank(1, details={"done": {"wrong": 3}})], "wrong-data"),
        ([rank(0, "entered", **WAITS), rank(1, "group", exit_code=-11)], "crashed"),
        ([rank(0, "entered", **WAITS), rank(1, "group", **KILLED)], "error"),
        ([rank(0, "entered", **KILLED), rank(1, "group", **KILLED)], "hung"),
        ([rank(0, "group", exit_code=0), rank(1, "group", exit_code=0)], "crashed"),
        ([rank(0), rank(1, killed=True)], "passed"),
    ],
)
def test_how_a_run_ended(ranks: list[RankTrace], outcome: Outcome) -> None:
    assert outcome_of({trace.rank: trace for trace in ranks}) == outcome


def test_the_stage_of_a_failure_is_the_first_mark_that_is_missing() -> None:
    assert first_missing({0: rank(0, "entered"), 1: rank(1, "store")}) == "group"
    assert first_missing({0: rank(0)}) == "end"
    assert first_missing({0: RankTrace(0, Slot(0, 0))}) == "start"
    assert [next_mark(stage) for stage in ("started", "start", "warm", "done")] == ["start", "imported", "done", "done"]
