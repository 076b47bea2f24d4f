"""Lines of the kernel's log that concern the job: those about its hosts, GPUs and processes, at the time of the job.

The log of a host goes back to its boot and covers all its processes. A line that cannot concern the job is set aside
with the reason before anything is weighed: an old fault beside a healthy job is no fault of the job.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from nccl_triage.observations.event import Event
from nccl_triage.parsers import times
from nccl_triage.story import devices
from nccl_triage.story.decisions import COUNTS, ITSELF, Decision, Grounds, Table
from nccl_triage.story.devices import Devices, Place

#: Limit of a time that a process can have waited, in seconds.
LONGEST_WAIT = 7 * 86400.0
_HOUR = 3600.0
#: Limit of the difference of time zones, in hours.
_ZONES = 14
_YEAR = 365.25 * 86400
_KILLED = frozenset({"-9", "137", "9", "SIGKILL"})
#: The signature of a driver's report about one GPU.
XID = "nvidia-driver.xid_any"

#: A line and the decision whether it counts.
Aside = tuple[Event, Decision]


class Span(NamedTuple):
    """The time of a job by its own lines: begin and end, the last progress, the first failure."""

    begin: float | None
    end: float | None
    stopped: float | None
    failed: float | None
    is_failed: bool
    is_finished: bool


def set_aside(events: Sequence[Event], learn: Callable[[], Devices]) -> tuple[list[Event], list[Aside]]:
    """Return the events that may concern the job, and the lines of the kernel with what was decided about each.

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
    decided: list[Aside] = []
    for event in kernel:
        line = _KernelLine(event, known, span, order, comparable, id(event) in strangers)
        decision = RULES.decide(line, event)
        if decision is not None:
            decided.append((event, decision))
    gone = {id(event) for event, decision in decided if decision.answer != COUNTS}
    return [event for event in events if id(event) not in gone], decided


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


@dataclass
class _KernelLine:
    """A line of the kernel, and what is asked about it."""

    event: Event
    known: Devices
    span: Span
    order: _Order
    #: Whether hosts of the job and of the kernel's log have names that can be compared.
    comparable: bool
    #: Whether it is about a victim of the out-of-memory killer that is no process of a job.
    is_stranger: bool

    @cached_property
    def place(self) -> Place:
        """The GPU or process that the line is about."""
        return self.known.place(self.event)

    @cached_property
    def around(self) -> tuple[Event | None, Event | None] | None:
        """The nearest lines of the job in the same source."""
        return self.order.around(self.event)

    @cached_property
    def outside(self) -> tuple[str, Grounds] | None:
        """Whether it was written before or after the time of the job, and by how many seconds."""
        return _of_time(self.event, self.span, self.around)


RULES: Table[_KernelLine] = Table("kernel")


@RULES.condition("other-host")
def _other_host(line: _KernelLine) -> Grounds | None:
    host = line.event.context.host
    return ITSELF if line.comparable and host and not line.known.has_host(host) else None


@RULES.condition("other-process")
def _other_process(line: _KernelLine) -> Grounds | None:
    return ITSELF if line.is_stranger else None


@RULES.condition("other-gpu")
def _other_gpu(line: _KernelLine) -> Grounds | None:
    place = line.place
    other = line.event.signature == XID and place.address is not None and place.rank is None
    return ITSELF if other and line.known.knows_all_of(place.host) else None


@RULES.condition("before-job")
def _before_job(line: _KernelLine) -> Grounds | None:
    return line.outside[1] if line.outside is not None and line.outside[0] == "before" else None


@RULES.condition("after-job")
def _after_job(line: _KernelLine) -> Grounds | None:
    return line.outside[1] if line.outside is not None and line.outside[0] == "after" else None


@RULES.condition("names-process")
def _names_process(line: _KernelLine) -> Grounds | None:
    return ITSELF if line.place.how == "pid" else None


@RULES.condition("among-lines-of-job")
def _among_lines_of_job(line: _KernelLine) -> Grounds | None:
    return None if line.around is None else Grounds(tuple(event for event in line.around if event is not None))


@RULES.condition("job-failed")
def _job_failed(line: _KernelLine) -> Grounds | None:
    return ITSELF if line.span.is_failed else None


@RULES.condition("job-finished")
def _job_finished(line: _KernelLine) -> Grounds | None:
    return ITSELF if line.span.is_finished else None


@RULES.condition("no-clock")
def _no_clock(line: _KernelLine) -> Grounds | None:
    return ITSELF if line.event.context.time is None else None


@RULES.condition("within-time-of-job")
def _within_time_of_job(line: _KernelLine) -> Grounds | None:
    return ITSELF


def _of_time(event: Event, span: Span, around: tuple[Event | None, Event | None] | None) -> tuple[str, Grounds] | None:
    """Return "before" or "after" and the distance for a line outside of the job's time, None for one within."""
    moment = event.context.time
    if moment is None or span.begin is None or span.end is None:
        return None
    moment = _in_year_of(moment, span.end)
    end = span.end
    if not times.has_year(end) and times.has_year(moment):
        return None  # the day may match although the year differs
    limits = RULES.limits
    slack = limits["skew"] if span.is_finished or span.is_failed else limits["silence"]
    if span.begin - limits["before"] <= moment <= end + slack or _of_other_zone(moment, span):
        return None
    if around is not None and _in_its_place(moment, around, end + slack):
        return None
    if moment < span.begin:
        return "before", Grounds((), {"seconds": round(span.begin - moment)})
    return "after", Grounds((), {"seconds": round(moment - end)})


def _in_its_place(moment: float, around: tuple[Event | None, Event | None], end: float) -> bool:
    """Tell whether a line fits into its place in its source if its clock differs by whole hours.

    Otherwise an older log of the kernel was printed into that of the job.
    """
    before, after = ((event.context.time if event is not None else None) for event in around)
    if before is None:
        return False
    until = after if after is not None else end
    return any(
        before - RULES.limits["skew"] <= moment - hours * _HOUR <= until + RULES.limits["skew"]
        for hours in range(-_ZONES, _ZONES + 1)
        if hours
    )


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
    for reference, earlier, later in ((span.stopped, 60.0, 300.0), (span.failed, RULES.limits["skew"], 60.0)):
        if reference is None:
            continue
        hours = round((moment - reference) / _HOUR)
        if 0 < abs(hours) <= _ZONES and -earlier <= moment - hours * _HOUR - reference <= later:
            return True
    return False
