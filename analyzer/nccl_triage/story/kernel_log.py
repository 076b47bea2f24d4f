"""Lines of the kernel's log that concern the job: those about its hosts, GPUs and processes, at the time of the job.

The log of a host goes back to its boot and covers all its processes. A line that cannot concern the job is set aside
with the reason before anything is weighed: an old fault beside a healthy job is no fault of the job.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nccl_triage.observations.event import Event
from nccl_triage.parsers import times
from nccl_triage.story import devices
from nccl_triage.story.devices import Devices

#: Seconds by which clocks of hosts may differ, and by which a fault may precede the first line with a time.
SKEW, BEFORE = 120.0, 600.0
#: Seconds after the last line within which a fault may be the reason that a job printed nothing more.
SILENCE = 1800.0
#: Limit of a time that a process can have waited, in seconds.
LONGEST_WAIT = 7 * 86400.0
_HOUR = 3600.0
#: Limit of the difference of time zones, in hours.
_ZONES = 14
_YEAR = 365.25 * 86400
_KILLED = frozenset({"-9", "137", "9", "SIGKILL"})
#: The signature of a driver's report about one GPU.
XID = "nvidia-driver.xid_any"

#: A line that does not count, and why.
Aside = tuple[Event, str]


class Span(NamedTuple):
    """The time of a job by its own lines: begin and end, the last progress, the first failure."""

    begin: float | None
    end: float | None
    stopped: float | None
    failed: float | None
    is_failed: bool
    is_finished: bool


def set_aside(events: Sequence[Event], learn: Callable[[], Devices]) -> tuple[list[Event], list[Aside]]:
    """Return the events that may concern the job, and those of the kernel that cannot, with the reason.

    ``learn`` returns the devices of ranks; it is called only if there are lines of the kernel. The result for a line
    depends on that line and on the job's own lines, not on other lines of the kernel.
    """
    kernel = [event for event in events if devices.is_kernel(event)]
    if not kernel:
        return list(events), []
    sources = job_sources(events)
    job = [event for event in events if event.source in sources and _is_own(event)]
    if not job:
        return list(events), []
    known = learn()
    span, order = _span(job), _Order(job)
    named = {event.context.host for event in job if event.context.host}
    comparable = any(known.has_host(name) for name in named)
    strangers = set() if any(_is_kill(event) for event in job) else _strangers(kernel, known)
    aside: dict[int, str] = {}
    for event in kernel:
        if comparable and event.context.host and not known.has_host(event.context.host):
            reason: str | None = "elsewhere"
        elif id(event) in strangers:
            reason = "other-process"
        else:
            reason = _reason(event, span, known, order)
        if reason is not None:
            aside[id(event)] = reason
    kept = [event for event in events if id(event) not in aside]
    return kept, [(event, aside[id(event)]) for event in kernel if id(event) in aside]


def _is_own(event: Event) -> bool:
    """Tell whether a line is certainly from the job: not from the kernel, and not an unknown one without a rank."""
    if event.kind == "salient" and event.context.rank is None:
        return False
    return not devices.is_kernel(event)


class _Order:
    """The positions of the job's own lines in their sources: within a source the order is certain, whatever clocks say."""

    def __init__(self, job: Sequence[Event]) -> None:
        self._lines: dict[str, list[Event]] = {}
        for event in sorted(job, key=lambda event: event.line):
            self._lines.setdefault(event.source, []).append(event)

    def around(self, event: Event) -> tuple[Event | None, Event | None] | None:
        """Return the nearest lines of the job before and after a line in its source, None for a source without any."""
        lines = self._lines.get(event.source)
        if lines is None:
            return None
        place = bisect(lines, event.line, key=lambda one: one.line)
        return (lines[place - 1] if place else None), (lines[place] if place < len(lines) else None)


def names_victim(event: Event) -> bool:
    """Tell whether a line names the victim of the out-of-memory killer, by its pid."""
    return event.kind == "memory.killed" and "pid" in event.fields


def _is_kill(event: Event) -> bool:
    """Tell whether a line reports a process that was killed with SIGKILL."""
    return not _KILLED.isdisjoint(event.fields.get(name, "") for name in ("exitcode", "signal", "signo"))


def _of_job(event: Event) -> bool:
    """Tell whether a line can only come from a job: it shows progress, or a training library prints it."""
    return event.role == "progress" or event.signature.startswith(("nccl.", "torch", "python.", "training.", "ray."))


def _span(job: Sequence[Event]) -> Span:
    stamped = [event for event in job if event.context.time is not None]
    # If some times have a year, those without one are not used.
    stamped = [event for event in stamped if times.has_year(event.context.time or 0.0)] or stamped
    moments = [event.context.time or 0.0 for event in stamped]
    begun = [(event.context.time or 0.0) - waited(event) for event in stamped]
    failures = [event for event in job if event.is_failure]
    failed = min((event.context.time or 0.0 for event in stamped if event.is_failure), default=None)
    advanced = [
        event.context.time or 0.0
        for event in stamped
        if event.role == "progress" and (failed is None or (event.context.time or 0.0) <= failed)
    ]
    return Span(
        begin=min(begun, default=None),
        end=max(moments, default=None),
        stopped=max(advanced, default=None),
        failed=failed,
        is_failed=bool(failures),
        is_finished=any(event.kind == "job.finished" for event in job),
    )


def job_sources(events: Sequence[Event]) -> set[str]:
    """Return the sources that hold lines of a job; the others are logs and reports of hosts."""
    return {event.source for event in events if _of_job(event)}


def _strangers(kernel: Sequence[Event], known: Devices) -> set[int]:
    """Return the identities of lines about victims of the out-of-memory killer that are no processes of a job.

    The process that requested memory need not be the victim, so its line is treated like the victims of its log.
    """
    strange: set[int] = set()
    by_source: dict[str, list[Event]] = {}
    for event in kernel:
        if names_victim(event):
            by_source.setdefault(event.source, []).append(event)
    for events in by_source.values():
        others = {id(e) for e in events if known.place(e).rank is None and not devices.job_like(e.fields.get("name"))}
        strange |= others
        if len(others) == len(events):
            strange |= {
                id(e)
                for e in kernel
                if e.kind == "memory.killed" and "gfp" in e.fields and e.source == events[0].source
            }
    return strange


def waited(event: Event) -> float:
    """Return for how many seconds a process had waited when it gave up, by its line; 0 for other lines."""
    if event.kind not in ("collective.timeout", "rendezvous.failed", "call.timeout"):
        return 0.0
    for name, unit in (("elapsed_ms", 1e-3), ("ran_ms", 1e-3), ("timeout_ms", 1e-3), ("seconds", 1.0)):
        number = event.number(name)
        if number is not None and 0 <= number * unit <= LONGEST_WAIT:
            return number * unit
    return 0.0


def _reason(event: Event, span: Span, known: Devices, order: _Order) -> str | None:
    """Return why a line of the kernel cannot concern the job, or None."""
    place = known.place(event)
    if event.signature == XID and place.address is not None and place.rank is None and known.knows_all_of(place.host):
        return "other-gpu"
    around = order.around(event)
    timed = _of_time(event, span, around)
    if timed is not None:
        return timed
    if place.how == "pid" or around is not None or span.is_failed:
        return None
    if span.is_finished:
        return "finished"
    return "no-clock" if event.context.time is None else None


def _of_time(event: Event, span: Span, around: tuple[Event | None, Event | None] | None) -> str | None:
    """Return "before" or "after" for a line outside of the job's time, None for one within."""
    moment = event.context.time
    if moment is None or span.begin is None or span.end is None:
        return None
    moment = _in_year_of(moment, span.end)
    end = span.end
    if not times.has_year(end) and times.has_year(moment):
        return None  # the day may match although the year differs
    slack = SKEW if span.is_finished or span.is_failed else SILENCE
    if span.begin - BEFORE <= moment <= end + slack or _of_other_zone(moment, span):
        return None
    if around is not None and _in_its_place(moment, around, end + slack):
        return None
    return "before" if moment < span.begin else "after"


def _in_its_place(moment: float, around: tuple[Event | None, Event | None], end: float) -> bool:
    """Tell whether a line fits into its place in its source if its clock differs by whole hours.

    Otherwise an older log of the kernel was printed into that of the job.
    """
    before, after = ((event.context.time if event is not None else None) for event in around)
    if before is None:
        return False
    until = after if after is not None else end
    return any(before - SKEW <= moment - hours * _HOUR <= until + SKEW for hours in range(-_ZONES, _ZONES + 1) if hours)


def _in_year_of(moment: float, reference: float) -> float:
    """Return a time without a year moved next to a reference that has one."""
    moved = times.with_year_of(moment, reference)
    if moved == moment:
        return moment
    return min((moved, moved - _YEAR, moved + _YEAR), key=lambda value: abs(value - reference))


def _of_other_zone(moment: float, span: Span) -> bool:
    """Tell whether a line is at the failure of the job if the clocks differ by whole hours (UTC in a container)."""
    if not span.is_failed:
        return False
    for reference, earlier, later in ((span.stopped, 60.0, 300.0), (span.failed, SKEW, 60.0)):
        if reference is None:
            continue
        hours = round((moment - reference) / _HOUR)
        if 0 < abs(hours) <= _ZONES and -earlier <= moment - hours * _HOUR - reference <= later:
            return True
    return False
