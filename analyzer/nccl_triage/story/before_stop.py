"""What was wrong with a job before it was told to stop: then the stop only ended what had failed or hung.

A scheduler knows when it ended a job and on whose wish, but not whether the job still worked.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from nccl_triage.observations.event import Event
from nccl_triage.parsers.times import from_stamp, has_year
from nccl_triage.story.decisions import Decision, Grounds
from nccl_triage.story.exits import exits_of
from nccl_triage.story.survived_failures import ADVANCES
from nccl_triage.story.survived_failures import RULES as SURVIVAL
from nccl_triage.story.view import View

#: Seconds by which the clocks of two time zones in one log differ, or a multiple of it.
_ZONE = 1800.0
#: Kinds of lines by which the job or one of its processes is told to stop.
_STOPS = ("job.cancelled", "process.signalled")


def is_stop(event: Event) -> bool:
    """Tell whether a line says that the job or one of its processes was told to stop."""
    return event.kind in _STOPS


def stops_of(view: View) -> dict[str, Event]:
    """Return the first line of each source that says that the job or a process was told to stop."""
    found: dict[str, Event] = {}
    for event in view.of(*_STOPS):
        found.setdefault(event.source, event)
    return found


def failed_exits(view: View, stops: Mapping[str, Event]) -> list[Event]:
    """Return the exits with an error that a launcher reports before it or another is told to stop, if no step follows them.

    A job that advanced after a restart had survived them. What fails after the first stop fails because of it.
    """
    if not stops or not view.order_known:
        return []
    first = min(view.position(stop) for stop in stops.values())
    failed = [e.event for e in exits_of(view) if e.code != 0 and e.signal is None and e.event.source in stops]
    failed = [e for e in failed if view.position(e) < first and _precedes(e, stops[e.source])]
    advances = [view.position(e) for e in view.events if e.role == "progress" and e.kind in ADVANCES]
    return [e for e in failed if not any(view.position(e) < at < first for at in advances)]


def stalled(view: View, stops: Mapping[str, Event], limits: Mapping[str, float]) -> tuple[Event, Event, float] | None:
    """Return the last step, the stop and the seconds between them, if the job took no step for much longer than before.

    Set-up, checkpoints and evaluation may be slow, so nothing is said of a job whose last sign of progress is another one.
    """
    for source, stop in stops.items():
        before = [e for e in view.events if e.source == source and e.line < stop.line]
        advances = [e for e in before if e.role == "progress" or e.kind == "task.started"]
        times = sorted({e.context.time for e in advances if e.kind == "step" and e.context.time is not None})
        last, end = advances[-1] if advances else None, _time(stop)
        if last is None or last.kind != "step" or last.context.time is None or end is None:
            continue
        if len(times) < limits["timed_steps"] or has_year(end) != has_year(times[-1]):
            continue
        least = max(limits["silence"], limits["pauses"] * max(later - earlier for earlier, later in pairwise(times)))
        silence = end - times[-1]
        # What is about a multiple of half an hour may be the difference of two clocks.
        if silence > 0 and least < silence % _ZONE < _ZONE - limits["silence"]:
            return last, stop, silence
    return None


def _time(stop: Event) -> float | None:
    """Return when a job was stopped: as the line is stamped, or as the scheduler says in it."""
    return stop.context.time if stop.context.time is not None else from_stamp(stop.fields.get("time") or "")


def late_stops(view: View, outcome: Decision) -> list[tuple[Event, Decision]]:
    """Return the stops of a job that had failed or hung before, each with the reason why it does not count."""
    fault = outcome.events[0]
    return [
        (event, SURVIVAL.decision("stop-after-failure", event, Grounds((fault,))))
        for event in view.events[view.position(fault) + 1 :]
        if is_stop(event)
    ]


def _precedes(one: Event, two: Event) -> bool:
    """Tell whether a line comes before another of its source, which several launchers may have written into."""
    times = (one.context.time, two.context.time)
    return one.line < two.line and (times[0] is None or times[1] is None or times[0] < times[1])
