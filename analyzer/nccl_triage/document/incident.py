"""The incident: the first fault, the waits that followed, what it cost, the last checkpoint and good step before it.

A timeout back-dates its collective: the printing rank has waited since its line's time minus the time that the
operation ran (the clock of an operation starts when the CPU enqueues it, PyTorch ``ProcessGroupNCCL.cpp``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts.progress import progress_of
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.document.series import rank_of
from nccl_triage.observations.curves import CurveRow
from nccl_triage.observations.event import Event
from nccl_triage.parsers import times

#: Maximum number of waits listed, and the longest span of one incident in seconds.
MAX_WAITS, LONGEST = 64, 30 * 86400.0
#: How many lines away a timed line may be to lend its time to a fault without one.
NEAR = 200


def first_fault(diagnosis: Findings) -> Event | None:
    """Return the first line of a fault that the verdict rests on, else the first line that speaks of a failure."""
    case = diagnosis.case
    if diagnosis.verdict == "healthy":
        return None
    if diagnosis.verdict == "diagnosed" and diagnosis.candidates:
        weighed = diagnosis.candidates[0].weighed
        faults = [event for item in weighed.for_items for event in item.events if event.role == "root"]
        if faults:
            return min(faults, key=case.position)
    return next(iter(case.failures), None)


def waits(case: Case) -> list[dict[str, Any]]:
    """Return, by rank, since when and until when it waited in the collective that timed out."""
    records = [r for r in case.value("collective.stuck") or [] if r.arrival is not None and r.rank is not None]
    return [
        {
            "rank": record.rank,
            "since": times.show(record.arrival),
            "until": times.show(record.event.context.time),
            "path": record.event.source,
            "line": record.event.line,
        }
        for record in sorted(records, key=lambda r: (r.rank, r.event.source, r.event.line))[:MAX_WAITS]
    ]


def _waiting_since(case: Case) -> tuple[float, Event] | None:
    records = [r for r in case.value("collective.stuck") or [] if r.arrival is not None]
    if not records:
        return None
    first = min(records, key=lambda r: r.arrival)
    return first.arrival, first.event


def _point(case: Case, event: Event, time: float | None = None) -> dict[str, Any]:
    moment = event.context.time if time is None else time
    return {
        "path": event.source,
        "line": event.line,
        "time": None if moment is None else times.show(moment),
        "rank": case.rank(event),
        "host": case.host(event),
        "signature": event.signature,
        "role": event.role,
        "text": event.text[:300],
    }


def _latest(events: Iterable[Event], like: float) -> Event | None:
    """Return the latest event whose time has a year if ``like`` has one, and has none otherwise."""
    timed = [e for e in events if e.context.time is not None and times.has_year(e.context.time) == times.has_year(like)]
    return max(timed, key=lambda e: e.context.time or 0.0, default=None)


def _about(case: Case, event: Event) -> float | None:
    """Return the time of an event, or of the nearest timed line of its source within ``NEAR`` lines, before or else after it."""
    if event.context.time is not None:
        return event.context.time
    timed = [
        e
        for e in case.events
        if e.source == event.source and e.context.time is not None and abs(e.line - event.line) <= NEAR
    ]
    before = [e for e in timed if e.line <= event.line]
    near = max(before, key=lambda e: e.line) if before else min(timed, key=lambda e: e.line, default=None)
    return None if near is None else near.context.time


def _longest_wait(case: Case) -> float | None:
    """Return the longest wait in the collective that a rank reports, in seconds."""
    found = [r.elapsed_ms / 1000 for r in case.value("collective.stuck") or [] if r.elapsed_ms]
    return max(found, default=None)


def _last_progress(case: Case, fault: Event) -> Event | None:
    """Return the last sign of progress that is known to precede the fault."""
    if case.order_known:
        before = [e for e in progress_of(case) if case.position(e) < case.position(fault)]
    else:
        before = [e for e in progress_of(case) if e.source == fault.source and e.line < fault.line]
    return before[-1] if before else None


def _span(case: Case, fault: Event) -> tuple[float | None, Event | None, float | None]:
    """Return the start, the last line of the failure and the seconds between them, as far as times allow."""
    waiting = _waiting_since(case)
    start = _about(case, fault)
    if waiting is not None and (start is None or waiting[0] < start):
        start = waiting[0]
    if start is None:
        return None, None, None
    end = _latest(case.events, start)
    seconds = None if end is None else (end.context.time or 0.0) - start
    if seconds is None or not 0 < seconds <= LONGEST:
        return start, None, None
    return start, end, seconds


def describe(diagnosis: Findings) -> dict[str, Any] | None:
    """Return the incident's first fault, wait, end, length in seconds and rank-hours; None where nothing failed.

    ``seconds`` runs from the first fault, or from the first rank that waited where that is earlier, to the last line
    of the failure. Where lines carry no times it is the longest wait that a rank reports (``at_least``), else None.
    ``rank_hours`` also needs the number of ranks: the world's, or the fewest that the log shows. ``about`` tells that
    the fault's own line carries no time. ``gpu_hours`` is the work since the last checkpoint, where the log shows one.
    """
    case, fault = diagnosis.case, first_fault(diagnosis)
    if fault is None:
        return None
    waiting, progress = _waiting_since(case), _last_progress(case, fault)
    start, end, seconds = _span(case, fault)
    at_least = _longest_wait(case)
    bounded = at_least is not None and (seconds is None or at_least > seconds)
    if bounded:
        seconds = at_least
    world = case.identity.world_size
    ranks = world or case.value("collective.group_size") or len(case.identity.ranks) or None
    hosts = {host for event in (fault, end) if event is not None and (host := case.host(event))}
    return {
        "first_fault": _point(case, fault),
        "waiting_since": None if waiting is None else _point(case, waiting[1], waiting[0]),
        "last_progress": None if progress is None else _point(case, progress),
        "end": None if end is None else _point(case, end),
        "started": None if start is None else times.show(start),
        "seconds": None if seconds is None else round(seconds, 1),
        "about": fault.context.time is None,
        "at_least": bounded or world is None,
        "ranks": ranks,
        "rank_hours": (round(seconds * ranks / 3600, 2) or None) if seconds is not None and ranks else None,
        "one_clock": len(hosts) < 2,
        **_checkpoint(case, fault, start, end, ranks),
    }


def _checkpoint(case: Case, fault: Event, start: float | None, end: Event | None, ranks: int | None) -> dict[str, Any]:
    """Return the last checkpoint before the fault, the seconds from it to the end, and the GPU-hours of work lost."""
    saved = [e for e in case.having("task.finished", about="checkpoint") if _event_before(case, e, fault)]
    if not saved:
        return {"checkpoint": None, "checkpoint_seconds": None, "gpu_hours": None}
    last = max(saved, key=case.position)
    stop = start if end is None else end.context.time
    seconds, time = None, last.context.time
    if time is not None and stop is not None and times.has_year(time) == times.has_year(stop):
        seconds = round(stop - time, 1) if 0 < stop - time <= LONGEST else None
    hours = None if seconds is None or not ranks else round(seconds * ranks / 3600, 2)
    return {"checkpoint": _point(case, last), "checkpoint_seconds": seconds, "gpu_hours": hours}


def last_good_step(diagnosis: Findings) -> dict[str, Any] | None:
    """Return the last training step that is known to precede the first fault; None without a fault or a step."""
    fault = first_fault(diagnosis)
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
            found[event.source, event.line] = _step(
                step, event.source, event.line, event.context.time, case.rank(event)
            )
    table = case.observations.curves
    for row in [*(row for _, _, row in table.sampled()), *table.outermost()]:
        if row.step >= 0 and _row_before(row, fault):
            time = row.time if row.time >= 0 else None
            rank = rank_of(case, row.process)
            found.setdefault((row.source, row.line), _step(row.step, row.source, row.line, time, rank))
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


def _step(step: float, path: str, line: int, time: float | None, rank: int | None) -> dict[str, Any]:
    shown = times.show(time) if time is not None else None
    return {"step": int(step), "path": path, "line": line, "time": shown, "rank": rank}
