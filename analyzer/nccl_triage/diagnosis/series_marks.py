"""Places on the curves of a report: the last good step, and where a spike, a slow-down or NaN begins."""

from __future__ import annotations

from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.observations.event import Event
from nccl_triage.parsers import times

#: Signature -> what the mark is called.
KINDS = {
    "steps.slow_rank": "slow_rank",
    "steps.slow_down": "slow_down",
    "steps.throughput_drop": "throughput_drop",
    "steps.loss_spike": "spike",
    "steps.loss_not_finite": "not_finite",
}
#: Marks on one curve.
MAX_MARKS = 8


class Marks:
    """What is known of places, in the terms of any axis."""

    def __init__(self, case: Case, last_good: dict[str, Any] | None) -> None:
        self._case = case
        self._events = case.of(*KINDS)
        self._last_good = last_good

    def of(self, series: dict[str, Any], start: float) -> list[dict[str, Any]]:
        """Return the marks of one curve of the document; ``start`` is the time at which a time axis begins."""
        found: list[dict[str, Any]] = []
        good = self._last_good
        if good is not None:
            moment = times.from_stamp(good["time"]) if series["x"] == "time" and good["time"] else None
            at = _place(series, start, good["path"], good["line"], good["step"], moment)
            found += _mark("last_good", good["path"], good["line"], at)
        for event in self._events:
            if event.fields["metric"] == series["metric"] and self._is_of(event, series):
                at = _place(series, start, event.source, event.line, event.number("step"), event.context.time)
                found += _mark(KINDS[event.signature], event.source, event.line, at)
        points = [x for x, _ in series["points"]]
        inside = [mark for mark in found if points and points[0] <= mark["x"] <= points[-1]]
        return inside[:MAX_MARKS]

    def _is_of(self, event: Event, series: dict[str, Any]) -> bool:
        same_rank = series["rank"] is None or self._case.rank(event) == series["rank"]
        return same_rank and series["source"] in (None, event.source)


def _place(
    series: dict[str, Any], start: float, path: str, line: int, step: float | None, time: float | None
) -> float | None:
    """Return where a line stands on the axis of a curve, None where that is not known."""
    if series["x"] == "step":
        return step
    if series["x"] == "time":
        return None if time is None else time - start
    return float(line) if series["x"] == "line" and path == series["source"] else None


def _mark(kind: str, path: str, line: int, at: float | None) -> list[dict[str, Any]]:
    if at is None:
        return []
    x = int(at) if at == int(at) else float(f"{at:.7g}")
    return [{"kind": kind, "x": x, "path": path, "line": line}]
