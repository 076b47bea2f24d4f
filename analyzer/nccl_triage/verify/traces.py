"""What the marks of a rank mean: fold them into traces, and traces into an outcome.

The same functions serve live runs and those collected from files, where ``now`` is the rank's own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage.verify.model import Outcome, RankTrace
from nccl_triage.verify.worker.marks import STAGES


def note(trace: RankTrace, mark: Mapping[str, Any], now: float, started: float) -> bool:
    """Fold one mark into a rank's trace; returns whether it tells of a failure."""
    stage = mark["stage"]
    if stage == "call":
        trace.calls.append(dict(mark))
    elif stage == "flight":
        trace.flight = list(mark.get("entries", []))
    elif stage == "error":
        trace.error = dict(mark)
        return True
    elif stage == "part":
        trace.parts.append(dict(mark))
        trace.since = now
    elif stage == "iteration":
        trace.since = now
    elif stage in STAGES:
        trace.stage, trace.since = stage, now
        trace.times[stage] = now - started
        trace.details[stage] = dict(mark)
    return False


def outcome_of(traces: Mapping[int, RankTrace]) -> Outcome:
    """Return how a run ended, from how its ranks ended."""
    ranks = traces.values()
    if all(trace.done for trace in ranks):
        wrong = any(trace.details["done"].get("wrong") or any(p["wrong"] for p in trace.parts) for trace in ranks)
        return "wrong-data" if wrong else "passed"
    if any(trace.exit_code is not None and trace.exit_code < 0 and not trace.killed for trace in ranks):
        return "crashed"
    if any(trace.error is not None for trace in ranks):
        return "error"
    return "hung" if any(trace.killed for trace in ranks) else "crashed"


def first_missing(traces: Mapping[int, RankTrace]) -> str:
    """Return the first mark that not every rank reached, or ``end``."""
    reached = [set(trace.times) for trace in traces.values()]
    return next((stage for stage in STAGES if not all(stage in seen for seen in reached)), "end")


def next_mark(stage: str) -> str:
    """Return the mark that a rank owes after ``stage``."""
    if stage == "started":
        return STAGES[0]
    return STAGES[min(STAGES.index(stage) + 1, len(STAGES) - 1)]
