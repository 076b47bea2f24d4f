"""The last training step before the first fault: where to start again, and what is lost.

Steps whose loss is a spike or NaN until the failure are not good, though they stand before it.
"""

from __future__ import annotations

from typing import Any

from nccl_triage.diagnosis import incident
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts.progress import progress_of
from nccl_triage.diagnosis.model import Findings
from nccl_triage.diagnosis.series_groups import rank_of
from nccl_triage.observations.curves import CurveRow
from nccl_triage.observations.event import Event
from nccl_triage.parsers import times


def last_good_step(diagnosis: Findings) -> dict[str, Any] | None:
    """Return the last training step that certainly stands before the first fault; None without a fault or a step."""
    fault = incident.first_fault(diagnosis)
    if fault is None:
        return None
    case = diagnosis.case
    spoilt: dict[str, int] = {}
    for event in case.having("numbers.bad", "metric"):
        spoilt[event.source] = min(event.line, spoilt.get(event.source, event.line))
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for event in progress_of(case):
        step = event.number("step")
        if step is not None and event.kind != "progress.bar" and _event_before(case, event, fault):
            found[event.source, event.line] = _place(
                step, event.source, event.line, event.context.time, case.rank(event)
            )
    table = case.observations.curves
    for row in [*(row for _, _, row in table.sampled()), *table.outermost()]:
        if row.step >= 0 and _row_before(row, fault):
            time = row.time if row.time >= 0 else None
            rank = rank_of(case, row.process)
            found.setdefault((row.source, row.line), _place(row.step, row.source, row.line, time, rank))
    good = [place for (path, line), place in found.items() if path not in spoilt or line < spoilt[path]]
    own = [place for place in good if place["path"] == fault.source]
    if own:
        return max(own, key=lambda place: place["line"])
    return max(good, key=lambda place: (place["step"], place["path"], place["line"]), default=None)


def _event_before(case: Case, event: Event, fault: Event) -> bool:
    if case.order_known:
        return case.position(event) < case.position(fault)
    return event.source == fault.source and event.line < fault.line


def _row_before(row: CurveRow, fault: Event) -> bool:
    if row.source == fault.source:
        return row.line < fault.line
    time = fault.context.time
    if time is None or row.time < 0 or times.has_year(time) != times.has_year(row.time):
        return False
    return row.time < time


def _place(step: float, path: str, line: int, time: float | None, rank: int | None) -> dict[str, Any]:
    shown = times.show(time) if time is not None else None
    return {"step": int(step), "path": path, "line": line, "time": shown, "rank": rank}
