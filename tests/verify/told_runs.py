"""Runs that nobody made: what their ranks would have told, for the checks that judge them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nccl_triage.verify.assess import assess
from nccl_triage.verify.assessed_run import AssessedRun, OwnDiagnosis
from nccl_triage.verify.collective_run import (
    CollectiveMessage,
    CollectiveRun,
    RankTrace,
    RunFinding,
    RunOutcome,
    RunResult,
    Slot,
)
from nccl_triage.verify.runner import first_missing, outcome_of
from nccl_triage.verify.worker.progress import STAGES

NAMES = ("node-a", "node-b")
#: Seconds at which each stage is reached by a rank that does what it should.
TIMES = {stage: 0.1 * index for index, stage in enumerate(STAGES)}
CALL = {"call": "all_reduce", "message": ["float32", 64]}


def rank(
    number: int, until: str = "done", place: int = 0, calls: Sequence[dict[str, Any]] = (CALL,), **changes: Any
) -> RankTrace:
    """Return a rank that came to a stage; one that came to the end exits with 0."""
    reached = STAGES[: STAGES.index(until) + 1]
    trace = RankTrace(number, Slot(number, place), until)
    trace.times = {stage: TIMES[stage] for stage in reached}
    trace.details = {stage: {"stage": stage} for stage in reached}
    if "done" in reached:
        trace.exit_code, trace.exited_at = 0, 1.0
        trace.details["done"] = {"wrong": 0, "median": 0.01}
    if "entered" in reached:
        trace.calls = list(calls)
    for name, value in changes.items():
        setattr(trace, name, value)
    return trace


def run(
    *ranks: RankTrace, op: str = "ALLREDUCE", outcome: RunOutcome | None = None, backend: str = "gloo"
) -> RunResult:
    """Return the result that a runner would make of these ranks."""
    traces = {trace.rank: trace for trace in ranks}
    slots, device = tuple(trace.slot for trace in ranks), "cuda" if backend == "nccl" else "cpu"
    settled = CollectiveRun("r", slots, CollectiveMessage(op, 64), backend, device)
    return RunResult(settled, outcome or outcome_of(traces), first_missing(traces), 1.0, traces)


def seen(
    *ranks: RankTrace,
    paths: Sequence[RunFinding] = (),
    own: OwnDiagnosis | None = None,
    op: str = "ALLREDUCE",
    backend: str = "gloo",
) -> RunFinding | None:
    return assess(AssessedRun(run(*ranks, op=op, backend=backend), NAMES, tuple(paths), own))


def told(found: RunFinding | None) -> tuple[str, str, tuple[int, ...]]:
    assert found is not None
    assert found.says["en"] and found.says["zh"] and "{ranks}" not in found.says["en"] + found.says["zh"]
    return found.cause, found.kind, found.ranks


ERROR = {"type": "RuntimeError", "text": "Connection closed by peer"}
WAITS: dict[str, Any] = {"error": ERROR, "exit_code": 3, "exited_at": 2.0}
KILLED: dict[str, Any] = {"killed": True, "exit_code": -9, "exited_at": 9.0}
