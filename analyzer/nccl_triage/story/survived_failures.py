"""What became of every line that speaks of a failure: survived, or not.

A failure is survived when what it struck went on: the same process took another step, or the job as a whole took two that
it had not taken before. An exception behind a logger's record was caught, unless an end follows; one that its process
raises again was not its last word. Survived lines are remarks, however strong their words.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.parsers import times
from nccl_triage.parsers.traceback_lines import is_record

#: Kinds of lines by which a job is seen to advance. What workers set up or load says nothing about what failed before.
ADVANCES = ("step", "progress.bar", "progress", "task.finished")
#: Of these, what a process that failed no longer prints: bars of loading and capturing run on for a while.
PROVES = ("step", "progress")
#: Kinds of lines that show the job further on than it was, besides new steps.
MOVES = ("progress", "task.finished", "setup", "communicator.ready")
#: Kinds that tell of the end of a process, a host or the job: no progress of others undoes them.
ENDS = (
    "job.failed", "job.cancelled", "launch.failed", "node.lost", "process.exit", "process.lost", "process.crash", "process.abort",
    "process.stopped", "process.signalled", "memory.killed", "exception.relayed", "process.stalled",
)  # fmt: skip
#: Kinds of damage that stays: the job may go on with it for a while, and end of it later.
LASTS = ("hardware.error", "link.down", "gpu.unusable", "version.conflict")
#: Steps that the job must take after a failure which no line ties to a process, and after that of one which never tells
#: any: what other ranks have still in hand they may print.
STEPS, SEVERAL = 2, 4
#: The same for what the program itself calls a warning, by its level.
_MILD = {"INFO": 1, "I": 1, "WARNING": 1, "W": 1, "WARN": 2}
#: Characters by which a message is known again: programs put numbers in it, and what it is about behind its words.
WORDS = 40
_NUMBER = lazily(r"\d+")
#: How many times more a process raises the same that it must have caught.
AGAIN = 3
#: Lines of a crash's report below its first.
CRASH = 3
#: Lines behind a failure at which a step stands that was not held back in a buffer (8 KiB in C, as in Python).
FAR = 300
#: Kept lines of new steps behind a failure that show the job at work, whatever was held back: the last ones of many.
MANY = 5
EXCEPTIONS = ("exception", "exception.ignored")
#: Kinds of lines that are no sign that somebody goes on as before.
QUIET = (*EXCEPTIONS, "exception.frame", "salient", "teardown", "speaker", "communicator.closed")
#: What convicts only where it lasts to the end, whoever prints it with whatever role.
NUMBERS = "numbers.bad"

#: A failure that does not count, and why.
Survived = tuple[Event, str]
RankOf = Callable[[Event], int | None]


@dataclass(slots=True)
class _After:
    """What happened behind a place, collected from the end to the beginning."""

    steps: int = 0
    #: The same, and signs of other work: requests served, set-up that came further.
    moves: int = 0
    #: What was printed, but for troubles.
    printed: set[str] = field(default_factory=set)
    #: When the last step was made, by a clock that lines show.
    latest: float | None = None
    #: Where the last step stands.
    last_step: tuple[str, int] | None = None
    recovered: bool = False
    #: Whether numbers were bad to the end.
    spoilt: bool = False
    #: Whether a process, a host or the job certainly ended.
    ended: bool = False
    #: Where something ended, or may have.
    ends: set[tuple[str, int]] = field(default_factory=set)
    stepped: set[Hashable | None] = field(default_factory=set)
    #: Where each process raised the same exception.
    raised: dict[tuple[Hashable, tuple[str, str]], set[tuple[str, int]]] = field(default_factory=dict)

    def note(self, event: Event, process: Hashable | None, block: Event | None, new: bool) -> None:
        """Take an event that stands before all that were taken."""
        self.steps += new
        self.moves += new or (event.role == "progress" and event.kind in MOVES)
        if block is None and not event.is_failure and event.kind not in QUIET:
            self.printed.add(event.signature)
        self.recovered = self.recovered or event.kind == "recovered"
        if event.role == "progress" and event.kind in PROVES:
            self.stepped.add(process)
            if self.latest is None:
                self.latest = event.context.time
            if self.last_step is None:
                self.last_step = event.source, event.line
        if event.kind in EXCEPTIONS and process is not None:
            self.raised.setdefault((process, _words(event)), set()).add(_place(event, block))

    def ended_beside(self, event: Event, block: Event | None) -> bool:
        """Tell whether something ends behind an event, other than by this very event."""
        return len(self.ends) > (_place(event, block) in self.ends)

    def raised_again(self, process: Hashable, event: Event, block: Event | None) -> bool:
        """Tell whether a process raised the same again and again: an exception that nobody catches is its last word.

        Children may print under the name of their parent, each its own last word, so that once or twice proves nothing.
        """
        raised = self.raised.get((process, _words(event)), set())
        return len(raised) - (_place(event, block) in raised) >= AGAIN


def process_of(event: Event, rank: int | None) -> Hashable | None:
    """Return which process printed a line, None where that is not known."""
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
    """Return the number of the step, iteration or epoch that a line tells of."""
    for name in ("step", "iter", "step2", "epoch"):
        number = event.number(name)
        if number is not None:
            return number
    return None


def new_steps(events: Sequence[Event]) -> list[bool]:
    """Tell of each event whether it is a step that the job had not taken before: higher than all before it of its form."""
    highest: dict[str, float] = {}
    lines: set[tuple[str, int]] = set()
    found = []
    for event in events:
        new = False
        if event.kind == "step" and event.role == "progress":
            number, line = step_number(event), (event.source, event.line)
            if number is None or number > highest.get(event.signature, float("-inf")):
                new = line not in lines  # several signatures may read one line
                lines.add(line)
            if number is not None:
                highest[event.signature] = max(number, highest.get(event.signature, number))
        found.append(new)
    return found


def survived(events: Sequence[Event], rank_of: RankOf) -> list[Survived]:
    """Return the lines of failures among events in their certain order that were survived, with the reason."""
    blocks = _blocks(events)
    processes = [process_of(event, rank_of(event)) for event in events]
    logged = _logged(events, processes)
    about = _about(events)
    telling = {process for event, process in zip(events, processes, strict=True) if event.kind in PROVES}
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
            tells = process is not None and process in telling
            reason = None
            if crashed.get(process, place) >= place:  # what a process prints of its crash is not survived
                reason = _reason(event, process, after, block, fate, tells, _later(event, about[id(event)], after))
            if reason is None and fate == "logged" and not after.ended_beside(event, block):
                # It goes on as before: what it printed before it prints again.
                reason = "caught" if any(first[name] < place for name in after.printed) else None
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
    # What belongs to a traceback goes with it.
    for event in events:
        block = blocks.get((event.source, event.line))
        if block is not None and id(block) in reasons:
            reasons.setdefault(id(event), reasons[id(block)])
    return [(event, reasons[id(event)]) for event in events if id(event) in reasons]


def _words(event: Event) -> tuple[str, str]:
    """Return by what an exception is known again: its type, and where it was raised or what it says."""
    kind = event.fields.get("type") or event.fields.get("name") or event.signature
    return kind, event.fields.get("raised_in") or _NUMBER.sub("#", event.text[: 2 * WORDS])[:WORDS]


def _place(event: Event, block: Event | None) -> tuple[str, int]:
    return event.source, event.line if block is None else block.line


def _blocks(events: Iterable[Event]) -> dict[tuple[str, int], Event]:
    """Return the traceback or report of a crash to which a line belongs, by source and line."""
    found: dict[tuple[str, int], Event] = {}
    for event in events:
        lines = _lines_of(event)
        if lines is not None:
            found.update(((event.source, line), event) for line in range(lines[0], lines[1] + 1))
        elif event.kind == "process.crash":
            # What it died of stands below: "what():  ..", the assertion, the message of the library.
            for line in range(event.line + 1, event.line + 1 + CRASH):
                found.setdefault((event.source, line), event)
    return found


def _lines_of(event: Event) -> tuple[int, int] | None:
    first, _, last = event.fields.get("block", "").partition("-")
    return (int(first), int(last)) if event.kind == "exception" and last else None


def _logged(events: Sequence[Event], processes: Sequence[Hashable | None]) -> set[int]:
    """Return the tracebacks right behind a record of a logger by the same process, by their identity."""
    records = {
        (event.source, event.line, process)
        for event, process in zip(events, processes, strict=True)
        if event.kind == "salient" and (event.context.level is not None or is_record(event.text))
    }
    found = set()
    for event, process in zip(events, processes, strict=True):
        lines = _lines_of(event)
        if lines is not None and any((event.source, lines[0] - back, process) in records for back in (1, 2)):
            found.add(id(event))
    return found


def _fate(block: Event | None, logged: Container[int]) -> str | None:
    """Return what the lines around a traceback say of it: ignored, uncaught or logged."""
    if block is None or block.kind in ENDS:
        return None
    return "logged" if id(block) in logged else block.fields.get("fate")


def _reason(
    event: Event,
    process: Hashable | None,
    after: _After,
    block: Event | None,
    fate: str | None,
    tells: bool,
    later: bool,
) -> str | None:
    """Return how a failure was survived, None where it was not.

    ``tells``: its process is one that tells its steps; ``later``: steps were certainly made after it.
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
    # What a process prints is held back until it ends, so steps behind a failure prove nothing where an end follows.
    if ended and not later and (block is not None or after.steps < MANY):
        return None
    # Of a rank that tells its steps the next one is awaited; of another one, that the job goes on without a word of it.
    enough = _MILD.get(event.context.level or "", STEPS if process is None else SEVERAL)
    if process in after.stepped if tells else (after.steps if process is not None else after.moves) >= enough:
        return "went-on"
    return None


def _about(events: Sequence[Event]) -> dict[int, float | None]:
    """Return when each event was printed: its own time, or that of the last line before it in its source that has one."""
    clocks: dict[str, float] = {}
    found: dict[int, float | None] = {}
    for event in events:
        if event.context.time is not None:
            clocks[event.source] = event.context.time
        found[id(event)] = clocks.get(event.source)
    return found


def _later(event: Event, about: float | None, after: _After) -> bool:
    """Tell whether clocks, or a distance that no buffer spans, show that the job made steps after an event."""
    if after.latest is not None and about is not None and times.has_year(about) == times.has_year(after.latest):
        return after.latest > about
    last = after.last_step
    return last is not None and last[0] == event.source and last[1] - event.line >= FAR
