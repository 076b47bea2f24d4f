"""Failures that the job survived: their lines are set aside, however severe their words.

A failure was survived if what it affected went on: the same process took another step, or the job as a whole took two
new ones. An exception after a logger's record was caught, unless an exit follows, if its process then prints what it
printed before, or goes on after it logged the same several times. An exception that its process raises again was not the
end of that process. The rules are the table "survival" of ``rules/story``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import SourceInfo, lines_below
from nccl_triage.parsers import times, tracebacks
from nccl_triage.parsers.traceback_lines import is_record
from nccl_triage.story.decisions import COUNTS, ITSELF, Decision, Grounds, Table
from nccl_triage.story.exceptions import LOGGED
from nccl_triage.story.line_spans import LineOwners

#: Kinds of lines that show progress of a job. Set-up and loading by workers say nothing about what failed before.
ADVANCES = ("step", "progress.bar", "progress", "task.finished")
#: Those of them that a failed process no longer prints. (Progress bars of loading and capturing run on for a while.)
PROVES = ("step", "progress")
#: Kinds of lines that show that the job got further, besides new steps.
MOVES = ("progress", "task.finished", "setup", "communicator.ready")
#: The threshold that holds for lines that the program itself logs as a warning, by their level.
_MILD = {"INFO": "steps_after_warning", "I": "steps_after_warning", "WARNING": "steps_after_warning",
         "W": "steps_after_warning", "WARN": "steps_after_warn"}  # fmt: skip
#: Characters by which a message is recognised again; numbers and details follow later in it.
WORDS = 40
_NUMBER = lazily(r"\d+")
#: Words by which a program says that it tries again.
_RETRIES = lazily(
    r"(?i)\b(?:retrying|will (?:re)?try|retry (?:in|after) \d|\d retries left|trying again|reconnecting|falling back)\b|正在重试|后重试"
)
#: Lines of a crash report after its first.
CRASH = 3
EXCEPTIONS = ("exception", "exception.ignored")
#: Kinds of lines that do not show that a process goes on as before.
QUIET = (*EXCEPTIONS, "exception.frame", "salient", "teardown", "speaker", "communicator.closed")
#: Kind of lines that count as a failure only if they last to the end, whatever their role.
NUMBERS = "numbers.bad"

#: Kind of lines by which somebody stops the job; they say nothing of what went wrong in it.
_STOP = "job.cancelled"
#: What Python raises after Ctrl-C.
_INTERRUPT = "KeyboardInterrupt"

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
    #: The last step, and the next sign of work.
    last_step: Event | None = None
    next_work: Event | None = None
    #: What says that something works again, and that the job or one of its ranks finished.
    recovered: Event | None = None
    finished: Event | None = None
    #: Whether numbers were bad to the end.
    spoilt: bool = False
    #: What certainly ended a process, a host or the job.
    ended: Event | None = None
    #: Sources and lines where something ended or may have ended.
    ends: dict[tuple[str, int], Event] = field(default_factory=dict)
    #: Those of them by which somebody stopped the job, and whether a person interrupted a process: that one was alive.
    stops: set[tuple[str, int]] = field(default_factory=set)
    interrupted: bool = False
    stepped: dict[Hashable | None, Event] = field(default_factory=dict)
    #: Where later failures count.
    unsolved: set[tuple[str, int]] = field(default_factory=set)
    #: Whether the job worked, by any sign.
    progressed: bool = False
    #: The last line of each source that is part of trouble, whatever its fate.
    troubled: dict[str, int] = field(default_factory=dict)
    #: Sources and lines where each process raised the same exception.
    raised: dict[tuple[Hashable, tuple[str, str]], set[tuple[str, int]]] = field(default_factory=dict)

    def note(self, event: Event, process: Hashable | None, block: Event | None, new: bool) -> None:
        """Record an event that precedes all recorded ones."""
        self.steps += new
        moved = new or (event.role == "progress" and event.kind in MOVES)
        self.moves += moved
        if moved:
            self.next_work = event
        if block is None and not event.is_failure and event.kind not in QUIET:
            self.printed.add(event.signature)
        self.progressed = self.progressed or event.role == "progress"
        if (event.is_failure or event.kind in QUIET) and not _is_stop(event, block):
            self.troubled.setdefault(event.source, event.line)
        if event.kind == "recovered":
            self.recovered = event
        if event.kind == "job.finished":
            self.finished = event
        if event.role == "progress" and event.kind in PROVES:
            self.stepped[process] = event
            if self.latest is None:
                self.latest = event.context.time
            if self.last_step is None:
                self.last_step = event
        if event.kind in EXCEPTIONS and process is not None:
            self.raised.setdefault((process, _words(event)), set()).add(_place(event, block))

    def ended_beside(self, event: Event, block: Event | None) -> Event | None:
        """Return the first thing other than this event itself that ends after it."""
        own = _place(event, block)
        return next((end for place, end in reversed(self.ends.items()) if place != own), None)

    def unsolved_beside(self, event: Event, block: Event | None) -> bool:
        """Tell whether a failure other than this event itself counts after it."""
        return len(self.unsolved) > (_place(event, block) in self.unsolved)

    def raised_again(self, process: Hashable, event: Event, block: Event | None) -> int:
        """Return how often a process raised the same exception after this one."""
        raised = self.raised.get((process, _words(event)), set())
        return len(raised) - (_place(event, block) in raised)


@dataclass(slots=True)
class _Failure:
    """A failure, and what is asked about it."""

    event: Event
    process: Hashable | None
    #: The traceback or crash report that it belongs to, and what the lines around it say of it.
    block: Event | None
    fate: str | None
    after: _After
    #: Whether its process prints its steps, and whether steps were certainly made after it.
    prints_steps: bool
    later: bool
    #: The crash of its process before it.
    crash: Event | None
    #: Position of the failure, and where each signature was first printed.
    place: int
    first: dict[str, int]
    #: How often its process logged the same exception.
    logged: int
    #: Lines that its source holds below it; 0 where that is not known.
    below: int
    #: The report of a rank that waited for others already when the port was found taken of which this failure tells.
    waited: Event | None

    @property
    def is_exception(self) -> bool:
        """Whether the line is about an exception of a program."""
        return self.event.kind in EXCEPTIONS


RULES: Table[_Failure] = Table("survival")
#: Applied after the others, since they compare a failure with others, or with how the run ended.
RULES.by_name("same-survived-before", "part-of-traceback", "stop-after-failure", "nothing-followed")


@RULES.condition("own-crash")
def _own_crash(failure: _Failure) -> Grounds | None:
    return None if failure.crash is None else Grounds((failure.crash,))


@RULES.condition("ignored")
def _ignored(failure: _Failure) -> Grounds | None:
    return ITSELF if failure.fate == "ignored" or failure.event.kind == "exception.ignored" else None


@RULES.condition("start-beside-a-wait")
def _start_beside_a_wait(failure: _Failure) -> Grounds | None:
    return None if failure.waited is None else Grounds((failure.waited,))


@RULES.condition("end-of-process")
def _end_of_process(failure: _Failure) -> Grounds | None:
    ends, block = RULES.kinds["end-of-process"], failure.block
    if failure.event.kind in ends:
        return ITSELF
    return Grounds((block,)) if block is not None and block.kind in ends else None


@RULES.condition("lasting-damage")
def _lasting_damage(failure: _Failure) -> Grounds | None:
    return ITSELF if failure.event.kind in RULES.kinds["lasting-damage"] else None


@RULES.condition("numbers-never-good-again")
def _numbers_never_good_again(failure: _Failure) -> Grounds | None:
    return ITSELF if "lasts" in failure.event.fields else None


@RULES.condition("recovered")
def _recovered(failure: _Failure) -> Grounds | None:
    found = failure.after.recovered
    return None if found is None or failure.event.kind == NUMBERS else Grounds((found,))


@RULES.condition("bad-numbers-to-the-end")
def _bad_numbers_to_the_end(failure: _Failure) -> Grounds | None:
    if failure.event.kind != NUMBERS:
        return None
    after = failure.after
    # Numbers before bad ones that last are where these began.
    after.spoilt = after.spoilt or after.steps < RULES.limits["steps"]
    return Grounds((), {"followed": after.steps}) if after.spoilt else None


@RULES.condition("bad-numbers-passed")
def _bad_numbers_passed(failure: _Failure) -> Grounds | None:
    after = failure.after
    return _with(after.next_work, {"followed": after.steps}) if failure.event.kind == NUMBERS else None


@RULES.condition("uncaught")
def _uncaught(failure: _Failure) -> Grounds | None:
    return _with(failure.block) if failure.fate == "uncaught" else None


@RULES.condition("handled-at-import")
def _handled_at_import(failure: _Failure) -> Grounds | None:
    # The script that is run may lie in an installed package, too: then its log ends here.
    went_on = failure.below >= RULES.limits["printed"] and not failure.after.unsolved_beside(
        failure.event, failure.block
    )
    if failure.fate != "handled" or not went_on or failure.after.ended_beside(failure.event, failure.block) is not None:
        return None
    return _with(failure.block, {"below": failure.below})


@RULES.condition("raised-repeatedly")
def _raised_repeatedly(failure: _Failure) -> Grounds | None:
    if not failure.is_exception or failure.after.ended is not None or failure.process is None:
        return None
    # Child processes may print under the name of their parent, so that once or twice proves nothing.
    times_ = failure.after.raised_again(failure.process, failure.event, failure.block)
    return Grounds((), {"times": times_}) if times_ >= RULES.limits["again"] else None


@RULES.condition("end-follows")
def _end_follows(failure: _Failure) -> Grounds | None:
    end = failure.after.ended_beside(failure.event, failure.block)
    if end is None or failure.later or (failure.block is None and failure.after.steps >= RULES.limits["many"]):
        return None
    return Grounds((end,), {"followed": failure.after.steps})


@RULES.condition("warning-before-the-end")
def _warning_before_the_end(failure: _Failure) -> Grounds | None:
    finished = failure.after.finished
    if finished is None or failure.event.context.level not in _MILD:
        return None
    return None if failure.after.ended_beside(failure.event, failure.block) is not None else Grounds((finished,))


@RULES.condition("own-steps")
def _own_steps(failure: _Failure) -> Grounds | None:
    step = failure.after.stepped.get(failure.process) if failure.prints_steps else None
    return None if step is None else Grounds((step,))


@RULES.condition("job-went-on")
def _job_went_on(failure: _Failure) -> Grounds | None:
    if failure.prints_steps:
        return None
    # Other ranks may still print the steps that they have in progress.
    known = failure.process is not None
    name = _MILD.get(failure.event.context.level or "", "several" if known else "steps")
    followed, enough = failure.after.steps if known else failure.after.moves, RULES.limits[name]
    return _with(failure.after.next_work, {"followed": followed, "enough": enough}) if followed >= enough else None


@RULES.condition("logged-then-as-before")
def _logged_then_as_before(failure: _Failure) -> Grounds | None:
    if not _was_logged(failure) or not any(failure.first[name] < failure.place for name in failure.after.printed):
        return None
    return _with(failure.block)


@RULES.condition("logged-repeatedly")
def _logged_repeatedly(failure: _Failure) -> Grounds | None:
    block = failure.block
    often = block is not None and "below" in block.fields and failure.logged >= RULES.limits["again"]
    return _with(block, {"times": failure.logged}) if often and _was_logged(failure) else None


@RULES.condition("output-went-on")
def _output_went_on(failure: _Failure) -> Grounds | None:
    # The lines of other processes may follow those of a dead one.
    if failure.fate == "uncaught" or failure.process is not None or failure.event.kind in RULES.kinds["end-of-process"]:
        return None
    if failure.after.unsolved_beside(failure.event, failure.block) or not _only_stops(failure):
        return None
    enough = RULES.limits["ordinary"] if _RETRIES.search(failure.event.text) is None else 1
    return Grounds((), {"below": failure.below}) if failure.below >= enough else None


def _only_stops(failure: _Failure) -> bool:
    """Tell whether nothing ends after a failure, or only a job that was at work until somebody stopped it."""
    after, own = failure.after, _place(failure.event, failure.block)
    if after.ended_beside(failure.event, failure.block) is None:
        return True
    return (after.progressed or after.interrupted) and all(place in after.stops or place == own for place in after.ends)


def _is_stop(event: Event, block: Event | None) -> bool:
    """Tell whether somebody stopped the job or interrupted its program, or a line belongs to the traceback of that."""
    interrupted = block is not None and block.fields.get("type") == _INTERRUPT
    return interrupted or event.kind == _STOP or event.text.lstrip().startswith(_INTERRUPT)


def _was_logged(failure: _Failure) -> bool:
    """Tell whether an exception follows a record of a logger, and nothing ends after it."""
    return failure.fate == "logged" and failure.after.ended_beside(failure.event, failure.block) is None


def _with(event: Event | None, numbers: dict[str, float | int | str] | None = None) -> Grounds:
    return Grounds(() if event is None else (event,), numbers or {})


def without_output(judged: list[tuple[Event, Decision]]) -> list[tuple[Event, Decision]]:
    """Return the decisions as if output after a failure proved nothing."""
    by_output = "survival.output-went-on"
    return [
        (event, RULES.decision("nothing-followed", event) if decision.rule == by_output else decision)
        for event, decision in judged
    ]


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


def judge(events: Sequence[Event], rank_of: RankOf, sources: Mapping[str, SourceInfo]) -> list[tuple[Event, Decision]]:
    """Return every failure in order with the decision whether it counts; the order of the events must be certain."""
    blocks = _blocks(events)
    processes = [process_of(event, rank_of(event)) for event in events]
    logged = _logged(events, processes)
    logged_as = Counter((p, _words(e)) for e, p in zip(events, processes, strict=True) if _fate(e, logged) == "logged")
    times_of = _times(events)
    printing = {process for event, process in zip(events, processes, strict=True) if event.kind in PROVES}
    decided: dict[int, Decision] = {}
    waiting: list[Event] = []
    after = _After()
    crashed: dict[Hashable | None, int] = {}
    for place, (event, process) in enumerate(zip(events, processes, strict=True)):
        if event.kind == "process.crash" and process is not None:
            crashed.setdefault(process, place)
    first = {event.signature: place for place, event in reversed(list(enumerate(events)))}
    beside = _starts_beside_waits(events, blocks, times_of)
    ends = RULES.kinds["end-of-process"]
    place = len(events)
    for event, process, new in zip(reversed(events), reversed(processes), reversed(new_steps(events)), strict=True):
        block = blocks.get((event.source, event.line))
        place -= 1
        if event.is_failure or event.kind in EXCEPTIONS or event.kind == NUMBERS:
            crash = crashed.get(process, place)
            failure = _Failure(
                event,
                process,
                block,
                _fate(block, logged),
                after,
                prints_steps=process is not None and process in printing,
                later=_stepped_later(event, times_of[id(event)], after),
                crash=events[crash] if crash < place else None,
                place=place,
                first=first,
                logged=logged_as[process, _words(block)] if block is not None and "below" in block.fields else 0,
                below=_below(event, block, sources, after),
                waited=beside.get(_place(event, block)),
            )
            decision = RULES.decide(failure, event)
            if decision is None or decision.answer == COUNTS:
                decision = RULES.overrule(failure, event) or decision or RULES.decision("nothing-followed", event)
            decided[id(event)] = decision
            if decision.answer == COUNTS and event.is_failure:
                if not _is_stop(event, block):
                    after.unsolved.add(_place(event, block))
                elif event.kind != _STOP:
                    after.interrupted = True
            if decision.answer == COUNTS and (event.kind in ends or event.kind in EXCEPTIONS):
                if event.kind in EXCEPTIONS and failure.fate != "uncaught" and after.ended is None:
                    waiting.append(event)
                after.ends[_place(event, block)] = event
                if _is_stop(event, block):
                    after.stops.add(_place(event, block))
                if event.kind in ends or failure.fate == "uncaught":
                    after.ended = event
        after.note(event, process, block, new)
    _compare(events, waiting, decided)
    # Lines that belong to a traceback share its result.
    for event in events:
        block = blocks.get((event.source, event.line))
        of_block = None if block is None else decided.get(id(block))
        if block is not None and of_block is not None and of_block.answer != COUNTS:
            own = decided.get(id(event))
            if own is None or own.answer == COUNTS:
                shared = RULES.decision("part-of-traceback", event, Grounds((block,)))
                decided[id(event)] = replace(shared, answer=of_block.answer)
    return [(event, decided[id(event)]) for event in events if id(event) in decided]


def _starts_beside_waits(
    events: Sequence[Event], blocks: Mapping[tuple[str, int], Event], times_of: Mapping[int, float | None]
) -> dict[tuple[str, int], Event]:
    """Return the places where a start failed for which a rank of the same log waited already, with that rank's report.

    A wait began when it was reported less the time that it had lasted. What only starts then is another launch.
    """
    waits: dict[str, tuple[float, Event]] = {}
    found: dict[tuple[str, int], Event] = {}
    for event in reversed(events):
        time, lasted = times_of[id(event)], event.number("elapsed_ms")
        if time is None:
            continue
        if event.kind == "collective.timeout" and lasted is not None:
            began = time - lasted / 1000
            if event.source not in waits or began < waits[event.source][0]:
                waits[event.source] = began, event
        elif event.kind in RULES.kinds["start-beside-a-wait"] and event.source in waits:
            began, report = waits[event.source]
            if times.has_year(began) == times.has_year(time) and time - began > RULES.limits["waiting"]:
                found[_place(event, blocks.get((event.source, event.line)))] = report
    return found


def _below(event: Event, block: Event | None, sources: Mapping[str, SourceInfo], after: _After) -> int:
    """Return how many lines stand below a failure, its traceback and all later trouble of its source."""
    lines = _lines_of(block) if block is not None else None
    last = max(event.line if lines is None else lines[1], after.troubled.get(event.source, 0))
    return max(0, lines_below(sources, event.source, last) or 0)


def _compare(events: Sequence[Event], waiting: Sequence[Event], decided: dict[int, Decision]) -> None:
    """Set aside the exceptions that the job survived elsewhere, if nothing ends after them."""
    survived = {_words(event): event for event in events if _is_survived(decided.get(id(event)))}
    for event in waiting:
        earlier = survived.get(_words(event))
        if earlier is not None:
            decided[id(event)] = RULES.decision("same-survived-before", event, Grounds((earlier,)))


def _is_survived(decision: Decision | None) -> bool:
    return decision is not None and decision.answer != COUNTS


def _words(event: Event) -> tuple[str, str]:
    """Return what identifies an exception: its type, and where it was raised or the beginning of its message."""
    kind = event.fields.get("type") or event.fields.get("name") or event.signature
    return kind, event.fields.get("raised_in") or _NUMBER.sub("#", event.text[: 2 * WORDS])[:WORDS]


def _place(event: Event, block: Event | None) -> tuple[str, int]:
    return event.source, event.line if block is None else block.line


def _blocks(events: Sequence[Event]) -> dict[tuple[str, int], Event]:
    """Return the traceback or crash report to which the line of each event belongs, by source and line."""
    owners = LineOwners[Event]((event.source, event.line) for event in events)
    for event in reversed(events):  # the last one has it
        lines = _lines_of(event)
        if lines is not None:
            owners.cover(event.source, *lines, event)
    for event in events:
        if event.kind == "process.crash":
            # The reason of a crash follows: "what():  ..", the assertion, the message of the library.
            owners.cover(event.source, event.line + 1, event.line + CRASH, event)
    return owners.found


def _lines_of(event: Event) -> tuple[int, int] | None:
    return tracebacks.lines_of(event) if event.kind == "exception" else None


def _logged(events: Sequence[Event], processes: Sequence[Hashable | None]) -> set[int]:
    """Return the identities of tracebacks right after a record of a logger by the same process."""
    records = {
        (event.source, event.line, process)
        for event, process in zip(events, processes, strict=True)
        if (event.kind == "salient" or event.signature in LOGGED)
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
    if block is None or block.kind in RULES.kinds["end-of-process"]:
        return None
    return "logged" if id(block) in logged else block.fields.get("fate")


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
    return last is not None and last.source == event.source and last.line - event.line >= RULES.limits["far"]
