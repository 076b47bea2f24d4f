"""Failures that the job survived: their lines are set aside, however severe their words.

A failure was survived if what it affected went on: the same process took another step, or the job as a whole took two
new ones. An exception after a logger's record was caught, unless an exit follows, if its process then prints what it
printed before, or goes on after it logged the same several times. An exception that its process raises again was not the
end of that process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.parsers import times, tracebacks
from nccl_triage.parsers.traceback_lines import is_record
from nccl_triage.story.exceptions import LOGGED

#: Kinds of lines that show progress of a job. Set-up and loading by workers say nothing about what failed before.
ADVANCES = ("step", "progress.bar", "progress", "task.finished")
#: Those of them that a failed process no longer prints. (Progress bars of loading and capturing run on for a while.)
PROVES = ("step", "progress")
#: Kinds of lines that show that the job got further, besides new steps.
MOVES = ("progress", "task.finished", "setup", "communicator.ready")
#: Kinds of lines about the end of a process, a host or the job. Progress of other processes does not undo them.
ENDS = (
    "job.failed", "job.cancelled", "launch.failed", "node.lost", "process.exit", "process.lost", "process.crash", "process.abort",
    "process.stopped", "process.signalled", "memory.killed", "exception.relayed", "process.stalled",
)  # fmt: skip
#: Kinds of damage that stays: the job may go on for a while and fail because of it later.
LASTS = ("hardware.error", "link.down", "gpu.unusable", "version.conflict")
#: Steps that the job must take after a failure of an unknown process, and after one of a process that never prints
#: steps. (Other ranks may still print the steps that they have in progress.)
STEPS, SEVERAL = 2, 4
#: The same for lines that the program itself logs as a warning, by their level.
_MILD = {"INFO": 1, "I": 1, "WARNING": 1, "W": 1, "WARN": 2}
#: Characters by which a message is recognised again; numbers and details follow later in it.
WORDS = 40
_NUMBER = lazily(r"\d+")
#: How often a process must raise the same exception again to show that it caught it.
AGAIN = 3
#: Lines of a crash report after its first.
CRASH = 3
#: Lines after a failure from which a step cannot have been held back in a buffer (8 KiB in C and in Python).
FAR = 300
#: Kept lines of new steps after a failure that show the job at work, whatever was held back in buffers.
MANY = 5
EXCEPTIONS = ("exception", "exception.ignored")
#: Kinds of lines that do not show that a process goes on as before.
QUIET = (*EXCEPTIONS, "exception.frame", "salient", "teardown", "speaker", "communicator.closed")
#: Kind of lines that count as a failure only if they last to the end, whatever their role.
NUMBERS = "numbers.bad"

#: A failure that does not count, and why.
Survived = tuple[Event, str]
RankOf = Callable[[Event], int | None]


@dataclass(slots=True)
class _After:
    """What happened after a line, collected from the end of the events to their beginning."""

    steps: int = 0
    #: New steps and signs of other work: requests served, set-up that got further.
    moves: int = 0
    #: Signatures that were printed, other than of trouble.
    printed: set[str] = field(default_factory=set)
    #: When the last step was made, by the time that its line states.
    latest: float | None = None
    #: Source and line of the last step.
    last_step: tuple[str, int] | None = None
    recovered: bool = False
    #: Whether the job or one of its ranks said that it finished.
    finished: bool = False
    #: Whether numbers were bad to the end.
    spoilt: bool = False
    #: Whether a process, a host or the job certainly ended.
    ended: bool = False
    #: Sources and lines where something ended or may have ended.
    ends: set[tuple[str, int]] = field(default_factory=set)
    stepped: set[Hashable | None] = field(default_factory=set)
    #: Sources and lines where each process raised the same exception.
    raised: dict[tuple[Hashable, tuple[str, str]], set[tuple[str, int]]] = field(default_factory=dict)

    def note(self, event: Event, process: Hashable | None, block: Event | None, new: bool) -> None:
        """Record an event that precedes all recorded ones."""
        self.steps += new
        self.moves += new or (event.role == "progress" and event.kind in MOVES)
        if block is None and not event.is_failure and event.kind not in QUIET:
            self.printed.add(event.signature)
        self.recovered = self.recovered or event.kind == "recovered"
        self.finished = self.finished or event.kind == "job.finished"
        if event.role == "progress" and event.kind in PROVES:
            self.stepped.add(process)
            if self.latest is None:
                self.latest = event.context.time
            if self.last_step is None:
                self.last_step = event.source, event.line
        if event.kind in EXCEPTIONS and process is not None:
            self.raised.setdefault((process, _words(event)), set()).add(_place(event, block))

    def ended_beside(self, event: Event, block: Event | None) -> bool:
        """Tell whether something other than this event itself ends after it."""
        return len(self.ends) > (_place(event, block) in self.ends)

    def raised_again(self, process: Hashable, event: Event, block: Event | None) -> bool:
        """Tell whether a process raised the same exception repeatedly, so that it must have caught it.

        Child processes may print under the name of their parent, so that once or twice proves nothing.
        """
        raised = self.raised.get((process, _words(event)), set())
        return len(raised) - (_place(event, block) in raised) >= AGAIN


def process_of(event: Event, rank: int | None) -> Hashable | None:
    """Return the process that printed a line, None if it is not known."""
    if "relayed" in event.fields:
        return None
    context = event.context
    if rank is not None:
        return "rank", rank
    if context.pid is not None:
        return "pid", context.host or context.address, context.pid
    if context.local_rank is not None:
        return "local", context.host or context.address, context.local_rank
    return None


def step_number(event: Event) -> float | None:
    """Return the number of the step, iteration or epoch in a line."""
    for name in ("step", "iter", "step2", "epoch"):
        number = event.number(name)
        if number is not None:
            return number
    return None


def new_steps(events: Sequence[Event]) -> list[bool]:
    """Tell for each event whether it is a new step of the job: its number is higher than all before it of its signature."""
    highest: dict[str, float] = {}
    lines: set[tuple[str, int]] = set()
    found = []
    for event in events:
        new = False
        # A bar that states a loss is that of a training loop.
        if (event.kind == "step" or "loss" in event.fields) and event.role == "progress":
            number, line = step_number(event), (event.source, event.line)
            if number is None or number > highest.get(event.signature, float("-inf")):
                new = line not in lines  # several signatures may read one line
                lines.add(line)
            if number is not None:
                highest[event.signature] = max(number, highest.get(event.signature, number))
        found.append(new)
    return found


def survived(events: Sequence[Event], rank_of: RankOf) -> list[Survived]:
    """Return the failures that were survived, with the reason; the order of the events must be certain."""
    blocks = _blocks(events)
    processes = [process_of(event, rank_of(event)) for event in events]
    logged = _logged(events, processes)
    logged_as = Counter((p, _words(e)) for e, p in zip(events, processes, strict=True) if _fate(e, logged) == "logged")
    times_of = _times(events)
    printing = {process for event, process in zip(events, processes, strict=True) if event.kind in PROVES}
    reasons: dict[int, str] = {}
    waiting: list[Event] = []
    after = _After()
    crashed: dict[Hashable | None, int] = {}
    for place, (event, process) in enumerate(zip(events, processes, strict=True)):
        if event.kind == "process.crash" and process is not None:
            crashed.setdefault(process, place)
    first = {event.signature: place for place, event in reversed(list(enumerate(events)))}
    place = len(events)
    for event, process, new in zip(reversed(events), reversed(processes), reversed(new_steps(events)), strict=True):
        block = blocks.get((event.source, event.line))
        place -= 1
        if event.is_failure or event.kind in EXCEPTIONS or event.kind == NUMBERS:
            fate = _fate(block, logged)
            prints_steps = process is not None and process in printing
            reason = None
            if crashed.get(process, place) >= place:  # what a process prints about its crash is not survived
                reason = _reason(
                    event, process, after, block, fate, prints_steps, _stepped_later(event, times_of[id(event)], after)
                )
            if reason is None and fate == "logged" and not after.ended_beside(event, block):
                # It goes on as before if it prints again what it printed before, or goes on after it logged the same often.
                as_before = any(first[name] < place for name in after.printed)
                often = block is not None and "below" in block.fields and logged_as[process, _words(block)] >= AGAIN
                reason = "caught" if as_before or often else None
            if reason is not None:
                reasons[id(event)] = reason
            elif event.kind in ENDS or event.kind in EXCEPTIONS:
                if event.kind in EXCEPTIONS and fate != "uncaught" and not after.ended:
                    waiting.append(event)
                after.ends.add(_place(event, block))
                after.ended = after.ended or event.kind in ENDS or fate == "uncaught"
        after.note(event, process, block, new)
    again = {_words(event) for event in events if id(event) in reasons}
    reasons.update((id(event), "again") for event in waiting if _words(event) in again)
    # Lines that belong to a traceback share its result.
    for event in events:
        block = blocks.get((event.source, event.line))
        if block is not None and id(block) in reasons:
            reasons.setdefault(id(event), reasons[id(block)])
    return [(event, reasons[id(event)]) for event in events if id(event) in reasons]


def _words(event: Event) -> tuple[str, str]:
    """Return what identifies an exception: its type, and where it was raised or the beginning of its message."""
    kind = event.fields.get("type") or event.fields.get("name") or event.signature
    return kind, event.fields.get("raised_in") or _NUMBER.sub("#", event.text[: 2 * WORDS])[:WORDS]


def _place(event: Event, block: Event | None) -> tuple[str, int]:
    return event.source, event.line if block is None else block.line


def _blocks(events: Iterable[Event]) -> dict[tuple[str, int], Event]:
    """Return the traceback or crash report to which each line belongs, by source and line."""
    found: dict[tuple[str, int], Event] = {}
    for event in events:
        lines = _lines_of(event)
        if lines is not None:
            found.update(((event.source, line), event) for line in range(lines[0], lines[1] + 1))
        elif event.kind == "process.crash":
            # The reason of a crash follows: "what():  ..", the assertion, the message of the library.
            for line in range(event.line + 1, event.line + 1 + CRASH):
                found.setdefault((event.source, line), event)
    return found


def _lines_of(event: Event) -> tuple[int, int] | None:
    return tracebacks.lines_of(event) if event.kind == "exception" else None


def _logged(events: Sequence[Event], processes: Sequence[Hashable | None]) -> set[int]:
    """Return the identities of tracebacks right after a record of a logger by the same process."""
    records = {
        (event.source, event.line, process)
        for event, process in zip(events, processes, strict=True)
        if (event.kind == "salient" or event.signature == LOGGED)
        and (event.context.level is not None or is_record(event.text))
    }
    found = set()
    for event, process in zip(events, processes, strict=True):
        lines = _lines_of(event)
        if lines is not None and any((event.source, lines[0] - back, process) in records for back in (1, 2)):
            found.add(id(event))
    return found


def _fate(block: Event | None, logged: Container[int]) -> str | None:
    """Return what the lines around a traceback say about it: ignored, uncaught, logged or None."""
    if block is None or block.kind in ENDS:
        return None
    return "logged" if id(block) in logged else block.fields.get("fate")


def _reason(
    event: Event,
    process: Hashable | None,
    after: _After,
    block: Event | None,
    fate: str | None,
    prints_steps: bool,
    later: bool,
) -> str | None:
    """Return how a failure was survived, None if it was not.

    ``prints_steps``: its process prints its steps. ``later``: steps were certainly made after it.
    """
    if fate == "ignored" or event.kind == "exception.ignored":
        return "ignored"
    if (
        event.kind in ENDS
        or event.kind in LASTS
        or "lasts" in event.fields
        or (block is not None and block.kind in ENDS)
    ):
        return None
    if after.recovered and event.kind != NUMBERS:
        return "recovered"
    if event.kind == NUMBERS:
        after.spoilt = after.spoilt or after.steps < STEPS
        return None if after.spoilt else "went-on"
    if fate == "uncaught":
        return None
    if (
        event.kind in EXCEPTIONS
        and not after.ended
        and process is not None
        and after.raised_again(process, event, block)
    ):
        return "went-on"
    ended = after.ended_beside(event, block)
    # Output may be held back until its process ends, so steps after a failure prove nothing if an exit follows.
    if ended and not later and (block is not None or after.steps < MANY):
        return None
    mild = _MILD.get(event.context.level or "")
    if mild is not None and after.finished and not ended:
        return "went-on"  # what was only a warning did not keep the job from its end
    # A rank that prints its steps must print another one; for other processes it is enough that the job goes on.
    enough = mild or (STEPS if process is None else SEVERAL)
    if process in after.stepped if prints_steps else (after.steps if process is not None else after.moves) >= enough:
        return "went-on"
    return None


def _times(events: Sequence[Event]) -> dict[int, float | None]:
    """Return when each event was printed: its own time, or that of the last line with one before it in its source."""
    clocks: dict[str, float] = {}
    found: dict[int, float | None] = {}
    for event in events:
        if event.context.time is not None:
            clocks[event.source] = event.context.time
        found[id(event)] = clocks.get(event.source)
    return found


def _stepped_later(event: Event, printed: float | None, after: _After) -> bool:
    """Tell whether times, or a distance larger than a buffer, show that the job made steps after an event."""
    if after.latest is not None and printed is not None and times.has_year(printed) == times.has_year(after.latest):
        return after.latest > printed
    last = after.last_step
    return last is not None and last[0] == event.source and last[1] - event.line >= FAR
