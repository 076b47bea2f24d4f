"""Split events into the runs of a job: what one file or folder holds of several.

A run begins with a line that says so (a launcher's banner, a scheduler's header, a command in a shell) where the run
before it had worked or ended, with a process that nobody had seen before, coming up behind the end of a job, or with the
next job step. A log whose first lines come again word for word, with their times or steps, was written twice. What is no
boundary for certain joins.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from nccl_triage.observations.event import Event
from nccl_triage.story import job_steps
from nccl_triage.story.ends import ends_job
from nccl_triage.story.fates import ADVANCES, RankOf, process_of, step_number

#: Kinds of lines with which a run begins.
OPENS = ("job.launched", "job.restarted")
#: Kinds of lines that a process prints while it comes up.
BEGINS = (*OPENS, "setup", "communicator.starting", "interface.chosen", "variable")
#: Lines at the beginning of a log by which it is known again.
OPENING = 3


@dataclass(slots=True)
class Part:
    """The events of one run in order, and the line that opened it."""

    events: list[Event] = field(default_factory=list)
    opened_by: Event | None = None


@dataclass(slots=True)
class _Seen:
    """What the run so far has shown."""

    worked: bool = False
    ended: bool = False
    processes: set[Hashable] = field(default_factory=set)
    #: Hosts on which launchers spoke, and whether the job worked behind that.
    launched: dict[str, bool] = field(default_factory=dict)
    highest: dict[str, float] = field(default_factory=dict)

    def note(self, event: Event, process: Hashable | None) -> None:
        """Take the next event of the run."""
        if event.kind in ADVANCES or event.is_failure:
            self.worked = True
            self.launched = dict.fromkeys(self.launched, True)
        self.ended = self.ended or ends_job(event)
        if event.kind in OPENS and event.context.host is not None:
            self.launched.setdefault(event.context.host, False)
        if process is not None:
            self.processes.add(process)
        if event.kind == "step" and (number := step_number(event)) is not None:
            self.highest[event.signature] = max(number, self.highest.get(event.signature, number))

    def begins(self, event: Event, process: Hashable | None) -> bool:
        """Tell whether an event opens the next run."""
        if event.kind in OPENS:
            # Launchers of other hosts may come later, as long as nothing ended.
            host = event.context.host
            return self.ended or (self.worked if host is None else self.launched.get(host, False))
        if not self.ended or event.is_failure:
            return False
        if event.kind in BEGINS:
            return process is None or process not in self.processes
        number = step_number(event) if event.kind == "step" and event.role == "progress" else None
        highest = self.highest.get(event.signature)
        return number is not None and highest is not None and number < highest and number <= 1


def split(events: Sequence[Event], rank_of: RankOf) -> list[Part]:
    """Return the runs that events in their certain order tell of, each with at least one event."""
    parts = [Part()]
    seen = _Seen()
    # A line that tells how a command failed names the command, too.
    failed = {(event.source, event.line) for event in events if event.is_failure}
    again = _again(events) | {id(events[position]) for position in job_steps.beginnings(events, BEGINS)}
    for event in events:
        process = _process(event, rank_of)
        begins = (event.source, event.line) not in failed and seen.begins(event, process)
        if parts[-1].events and (begins or id(event) in again):
            parts.append(Part(_of_line(parts[-1].events, event), event))
            if not parts[-2].events:
                del parts[-2]
            seen = _Seen()
        parts[-1].events.append(event)
        seen.note(event, process)
    return parts


def _again(events: Sequence[Event]) -> set[int]:
    """Return the events with which a log begins anew, word for word."""
    first = list({(event.source, event.line): event for event in reversed(events)}.values())[::-1]
    opening = [_words(event) for event in first[:OPENING]]
    if len(first) < 2 * OPENING or not _unique(first[:OPENING]):
        return set()
    return {
        id(event)
        for at, event in enumerate(first[OPENING:], OPENING)
        if _words(event) == opening[0] and [_words(one) for one in first[at : at + OPENING]] == opening
    }


def _words(event: Event) -> tuple[object, ...]:
    return event.signature, event.text, event.context.time, *event.context.process_key()


def _unique(events: Sequence[Event]) -> bool:
    """Tell whether a program prints these once: at a moment, or of a step."""
    return any(event.kind == "step" for event in events) or all(event.context.time is not None for event in events)


def _of_line(events: list[Event], event: Event) -> list[Event]:
    """Take the last events off that tell of the same line."""
    taken: list[Event] = []
    while events and (events[-1].source, events[-1].line) == (event.source, event.line):
        taken.insert(0, events.pop())
    return taken


def _process(event: Event, rank_of: RankOf) -> Hashable | None:
    """Return the process of an event: ranks are the same in every run, so its pid tells where it is known."""
    context = event.context
    if context.pid is not None:
        return "pid", context.host or context.address, context.pid
    return process_of(event, rank_of(event))
