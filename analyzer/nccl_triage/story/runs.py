"""Runs of a job: splits the events of an input, which may hold several runs, into one part for each.

A run begins with a line that says so (a launcher's banner, a scheduler's header, a command in a shell) where the run
before it had worked or ended. It also begins with a process that was not seen before and that starts after the end of a
job, with a process that starts a second time after exceptions ended all, and with the next job step of Slurm. An agent whose
workers have all ended gives up at once or starts others without a word, so that a further step after its line is one of others. A
log whose first lines come again word for word, with their times or steps, was written twice. First lines that come again
but for their numbers are those of a program that was started again, whatever it is. A launcher that starts all
processes again may give each attempt a folder. What is not certainly a boundary does not split. The rules are the table
"runs" of ``rules/story``.

Steps of one job may also run side by side (the head and the workers of a Ray cluster), so their ids alone separate
nothing. A step follows another one only if the first is named for the last time before the second is named at all, and
if between them something starts, or a task ends that had ended before.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import listed
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import SourceInfo
from nccl_triage.parsers import times, tracebacks
from nccl_triage.story.decisions import Decision, Grounds, Table, by
from nccl_triage.story.exits import ends_job
from nccl_triage.story.survived_failures import ADVANCES, RankOf, process_of, step_number

#: Kinds of lines with which a run begins.
OPENS = ("job.launched", "job.restarted")
#: Kinds of lines that a process prints while it comes up.
BEGINS = (*OPENS, "setup", "communicator.starting", "interface.chosen", "variable")
#: The field in which lines of Slurm name the step that they are about: 4711.0, or 4711 for a whole job.
STEP_FIELD = "stepid"
#: The id of a step that srun made. Other steps of a job ("4711.batch") are not counted.
_STEP_ID = lazily(r"(?P<job>\d{1,18})(?:\+\d{1,9})?(?:\.(?P<step>\d{1,9}))?", re.ASCII)
#: Kinds of lines that a scheduler and its launcher print while a step ends.
_ENDING = ("process.exit", "process.stopped", "process.signalled", "job.cancelled", "job.failed")
#: Kinds of lines with a counter that a program begins again.
_COUNTED = ("step", "progress.bar")
#: What processes do together.
SHARED = ("collective", "communicator", "rendezvous", "connection")
#: Number of a job, and number of its step (None for a whole job).
_JobStep = tuple[str, str | None]


@dataclass(slots=True)
class Part:
    """The events of one run in order, and the line that opened it."""

    events: list[Event] = field(default_factory=list)
    opened_by: Event | None = None
    #: Why it begins there; None for the first run.
    decision: Decision | None = None
    #: The ends that a scheduler's report states above the output: they come last.
    report: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class _Seen:
    """What the events of a run have shown so far."""

    worked: Event | None = None
    ended: Event | None = None
    #: The exception that nobody caught, by which the only process of the input ended.
    raised: Event | None = None
    #: Hosts on which an agent said that its workers have ended, and did not give up: the steps that were seen before.
    emptied: dict[str | None, tuple[Event, frozenset[str]]] = field(default_factory=dict)
    processes: set[Hashable] = field(default_factory=set)
    #: Those of them that an exception ended which nobody caught.
    dead: dict[Hashable, Event] = field(default_factory=dict)
    #: Hosts that lines state.
    hosts: set[str] = field(default_factory=set)
    #: What each process printed as it began.
    begun: set[tuple[Hashable, str]] = field(default_factory=set)
    #: Hosts on which launchers printed something, and whether the job worked after that.
    launched: dict[str, bool] = field(default_factory=dict)
    highest: dict[str, float] = field(default_factory=dict)

    def note(self, event: Event, process: Hashable | None) -> None:
        """Record the next event of the run."""
        if event.kind in ADVANCES or event.is_failure:
            self.worked = event
            self.launched = dict.fromkeys(self.launched, True)
        if self.ended is None and ends_job(event):
            self.ended = event
        if self.ended is not None:
            self.emptied.clear()
        elif event.kind == "process.exit" and "root" in event.fields:
            self.emptied[event.context.host] = event, frozenset(self.highest)
        if event.kind in OPENS and event.context.host is not None:
            self.launched.setdefault(event.context.host, False)
        if event.context.host is not None:
            self.hosts.add(event.context.host)
        if process is not None:
            self.processes.add(process)
            if event.fields.get("fate") == "uncaught":
                self.dead[process] = event
            if event.kind in BEGINS:
                self.begun.add((process, event.signature))
        elif event.fields.get("fate") == "uncaught":
            self.raised = event
        if event.kind in _COUNTED and (number := step_number(event)) is not None:
            self.highest[event.signature] = max(number, self.highest.get(event.signature, number))


@dataclass(slots=True)
class _Beginning:
    """A line that may begin another run."""

    event: Event
    process: Hashable | None
    seen: _Seen
    #: Whether the input holds the lines of one process, as far as they tell.
    alone: bool = False

    @property
    def ended_by(self) -> Event | None:
        """The exception that ended the process, if one that nobody caught ended every process of the run."""
        seen = self.seen
        if self.event.is_failure or self.process is None or not seen.dead.keys() >= seen.processes:
            return None
        return seen.dead.get(self.process)


RULES: Table[_Beginning] = Table("runs")
RULES.by_name("opening-again", "first-lines-again", "next-job-step", "attempt-folders")


@RULES.condition("launched-after-end")
def _launched_after_end(beginning: _Beginning) -> Grounds | None:
    return by(beginning.seen.ended)


@RULES.condition("launched-after-work")
def _launched_after_work(beginning: _Beginning) -> Grounds | None:
    # Launchers of other hosts may come later, as long as nothing ended.
    host, worked = beginning.event.context.host, beginning.seen.worked
    return by(worked) if host is None or beginning.seen.launched.get(host, False) else None


@RULES.condition("step-of-other-workers")
def _step_of_other_workers(beginning: _Beginning) -> Grounds | None:
    # Standard output may be held back until its process ends: a line below a failure need not be later.
    event, emptied = beginning.event, beginning.seen.emptied.get(beginning.event.context.host)
    if emptied is None or event.role != "progress" or event.signature not in emptied[1]:
        return None
    return Grounds((emptied[0],))


@RULES.condition("counter-again")
def _counter_again(beginning: _Beginning) -> Grounds | None:
    event, seen = beginning.event, beginning.seen
    ended = seen.ended or (seen.raised if beginning.alone else None)
    if ended is None or event.is_failure or event.role != "progress" or event.context.host in seen.emptied:
        return None
    number, highest = step_number(event), seen.highest.get(event.signature)
    if number is None or highest is None or not number < highest or number > RULES.limits["first_number"]:
        return None
    return Grounds((ended,), {"number": number, "highest": highest})


@RULES.condition("dead-process-again")
def _dead_process_again(beginning: _Beginning) -> Grounds | None:
    again = (beginning.process, beginning.event.signature) in beginning.seen.begun
    return by(beginning.ended_by) if again else None


@RULES.condition("new-process-after-end")
def _new_process_after_end(beginning: _Beginning) -> Grounds | None:
    if beginning.ended_by is not None or beginning.event.is_failure:
        return None
    known = beginning.process is not None and beginning.process in beginning.seen.processes
    return None if known else by(beginning.seen.ended)


def split(events: Sequence[Event], rank_of: RankOf, sources: Mapping[str, SourceInfo]) -> list[Part]:
    """Return the runs that events hold, each with at least one event; the order of the events must be certain."""
    parts = [Part()]
    openings = _Openings(events, sources)
    seen = _Seen()
    # A line that says how a command failed also names the command.
    failed = {(event.source, event.line) for event in events if event.is_failure}
    again = _again(events)
    alone = not any(_tells_of_others(event) for event in events)
    steps = {id(events[position]): grounds for position, grounds in _step_beginnings(events).items()}
    for event in events:
        process = _process(event, rank_of)
        begins = None
        if RULES.looks_at(event.kind) and (event.source, event.line) not in failed:
            begins = RULES.decide(_Beginning(event, process, seen, alone), event, event.kind)
        if begins is None and id(event) in again:
            begins = RULES.decision("opening-again", event, again[id(event)])
        if (line := openings.passed(event)) is not None and begins is None and openings.is_apart(line, event, seen):
            begins = RULES.decision("first-lines-again", event, Grounds((), {"line": line}))
        if begins is None and id(event) in steps:
            begins = RULES.decision("next-job-step", event, steps[id(event)])
        if parts[-1].events and begins is not None:
            report = _of_report(parts[-1].events, event) if "report" in event.fields else []
            parts.append(Part(_of_line(parts[-1].events, event), event, begins, report))
            if not parts[-2].events:
                del parts[-2]
            seen = _Seen()
            openings.begun = event.line
        parts[-1].events.append(event)
        seen.note(event, process)
    for part in parts:
        part.events += part.report
    return parts


def _tells_of_others(event: Event) -> bool:
    """Tell whether a line shows that the input may hold the lines of several processes."""
    context, name = event.context, event.kind.partition(".")[0]
    return context.rank is not None or context.local_rank is not None or name in SHARED or event.kind == "process.exit"


class _Openings:
    """The lines of a source at which its first lines come again."""

    def __init__(self, events: Sequence[Event], sources: Mapping[str, SourceInfo]) -> None:
        """``events``: all of one source; several sources tell runs apart by themselves (``of_files``)."""
        self._lines: deque[int] = deque()
        info = sources.get(events[0].source) if events else None
        if info is not None and info.openings and all(event.source == info.path for event in events):
            behind, *lines = info.openings
            # A log that begins with work or trouble was cut there: both come again within a run.
            if not any(_first_line(event) <= behind for event in events if event.is_failure or event.kind in ADVANCES):
                self._lines.extend(lines)
        #: The line with which the run began.
        self.begun = 0

    def passed(self, event: Event) -> int | None:
        """Return the last such line up to an event, None if there is no new one."""
        line = None
        while self._lines and self._lines[0] <= event.line:
            line = self._lines.popleft()
        return line

    def is_apart(self, line: int, event: Event, seen: _Seen) -> bool:
        """Tell whether an opening is that of another start.

        It may also be that of another rank, whose first lines come before any work, of another host, or of a process
        that goes on.
        """
        other = bool(seen.hosts) and event.context.host is not None and event.context.host not in seen.hosts
        if other or _by_pid(event) in seen.processes:
            return False
        return seen.worked is not None or line - self.begun >= RULES.limits["apart"]


def _first_line(event: Event) -> int:
    lines = tracebacks.lines_of(event) if event.kind == "exception" else None
    return event.line if lines is None else lines[0]


def of_files(events: Sequence[Event], sources: Mapping[str, SourceInfo]) -> list[Part]:
    """Return the runs that several files hold one below the other; none if no file begins again.

    The attempts of the file with the most of them are the runs. Those of another file are parted by their times, or end
    with the last run where these do not tell.
    """
    own: dict[str, list[Event]] = {}
    for event in events:
        own.setdefault(event.source, []).append(event)
    attempts = {path: _attempts(found, sources) for path, found in own.items()}
    main = max(attempts.values(), key=len, default=[])
    if len(own) < 2 or len(main) < 2:
        return []
    year = next((e.context.time for e in events if e.context.time is not None and times.has_year(e.context.time)), 0.0)
    starts = [_first_time(attempt, year) for attempt in main]
    of_run: dict[int, int] = {}
    for found in attempts.values():
        # A file that never begins again may hold all runs: each of its lines is parted by its own time.
        pieces = found if len(found) > 1 else [[event] for event in found[0]]
        time = None
        for number, piece in enumerate(pieces, len(main) - len(found)):
            time = _first_time(piece, year) or (time if len(found) == 1 else None)
            run = number if found is main else _run_at(time, starts, min(number, len(main) - 1))
            of_run.update((id(event), run) for event in piece)
    parts = [Part() for _ in main]
    for event in events:
        parts[of_run[id(event)]].events.append(event)
    for part, attempt in zip(parts[1:], main[1:], strict=True):
        part.opened_by = attempt[0]
        grounds = Grounds((), {"line": attempt[0].line})
        part.decision = RULES.decision("first-lines-again", part.opened_by, grounds)
    return parts


def _attempts(events: Sequence[Event], sources: Mapping[str, SourceInfo]) -> list[list[Event]]:
    """Return the events of one source, parted where its first lines come again."""
    openings, seen = _Openings(events, sources), _Seen()
    found: list[list[Event]] = [[]]
    for event in events:
        line = openings.passed(event)
        if line is not None and found[-1] and openings.is_apart(line, event, seen):
            found.append(_of_line(found[-1], event))
            seen, openings.begun = _Seen(), line
        found[-1].append(event)
        seen.note(event, _by_pid(event))
    return [attempt for attempt in found if attempt]


def _first_time(events: Sequence[Event], year: float) -> float | None:
    """Return the first time of events, in the year of another time if it has none."""
    found = next((event.context.time for event in events if event.context.time is not None), None)
    return None if found is None else times.with_year_of(found, year)


def _run_at(time: float | None, starts: Sequence[float | None], number: int) -> int:
    """Return the last run that had begun at a time, or ``number`` where the times do not tell."""
    if time is None or None in starts:
        return number
    begun = [run for run, start in enumerate(starts) if start is not None and start <= time + RULES.limits["together"]]
    return max(begun, default=0)


def of_attempts(events: Sequence[Event], sources: Mapping[str, SourceInfo]) -> list[Part]:
    """Return the runs of a job that its launcher started again, one of each attempt; none if the paths do not tell.

    Containers are started again one by one, so their numbers say nothing about the job.
    """
    attempts: dict[int, Part] = {}
    for event in events:
        info = sources.get(event.source)
        if info is None or info.attempt is None or info.layout == "kubernetes":
            return []
        attempts.setdefault(info.attempt, Part()).events.append(event)
    parts = [attempts[number] for number in sorted(attempts)]
    for part in parts[1:]:
        part.opened_by = part.events[0]
        part.decision = RULES.decision("attempt-folders", part.opened_by, Grounds((parts[0].events[0],)))
    return parts if len(parts) > 1 else []


def _again(events: Sequence[Event]) -> dict[int, Grounds]:
    """Return the identities of events with which a log begins again, word for word, with the lines that come again."""
    first = list({(event.source, event.line): event for event in reversed(events)}.values())[::-1]
    number = int(RULES.limits["opening"])
    opening = [_words(event) for event in first[:number]]
    if len(first) < 2 * number or not _unique(first[:number]):
        return {}
    grounds = Grounds(tuple(first[:number]))
    return {
        id(event): grounds
        for at, event in enumerate(first[number:], number)
        if _words(event) == opening[0] and [_words(one) for one in first[at : at + number]] == opening
    }


def _words(event: Event) -> tuple[object, ...]:
    return event.signature, event.text, event.context.time, *event.context.process_key()


def _unique(events: Sequence[Event]) -> bool:
    """Tell whether a program prints these lines only once: each has a time, or one is about a step."""
    return any(event.kind == "step" for event in events) or all(event.context.time is not None for event in events)


def _of_line(events: list[Event], event: Event) -> list[Event]:
    """Remove the last events if they were read from the same line, and return them."""
    taken: list[Event] = []
    while events and (events[-1].source, events[-1].line) == (event.source, event.line):
        taken.insert(0, events.pop())
    return taken


def _of_report(events: list[Event], event: Event) -> list[Event]:
    """Remove the ends that a scheduler's report states above the output of a job, and return them."""
    taken: list[Event] = []
    while events and events[-1].is_failure and events[-1].source == event.source:
        if event.line - events[-1].line > RULES.limits["report"]:
            break
        taken.insert(0, events.pop())
    return taken


def _process(event: Event, rank_of: RankOf) -> Hashable | None:
    """Return the process of an event: by its pid where it is known, since every run has the same ranks."""
    return _by_pid(event) or process_of(event, rank_of(event))


def _by_pid(event: Event) -> Hashable | None:
    context = event.context
    return None if context.pid is None else ("pid", context.host or context.address, context.pid)


def _step_beginnings(events: Sequence[Event]) -> dict[int, Grounds]:
    """Return the positions at which the events of a later job step begin, with the last line of the one before."""
    lines = {(event.source, event.line): step for event in events if (step := _step_of(event)) is not None}
    if not lines:
        return {}
    spans: dict[_JobStep, list[int]] = {}
    for position, event in enumerate(events):
        named = lines.get((event.source, event.line))
        if named is not None:
            spans.setdefault(named, [position, position])[1] = position
    # A line about a whole job says nothing about its steps.
    jobs = {job for job, step in spans if step is not None}
    ordered = sorted((span, step) for step, span in spans.items() if step[1] is not None or step[0] not in jobs)
    found: dict[int, Grounds] = {}
    start = 0
    for ((_, last), _), ((first, end), step) in pairwise(ordered):
        if last < first and (begin := _between_steps(events, start, last, first, end)) is not None:
            found[begin] = Grounds((events[last],), {"step": ".".join(filter(None, step))})
            start = begin
    return found


def _step_of(event: Event) -> _JobStep | None:
    text = event.fields.get(STEP_FIELD)
    named = _STEP_ID.fullmatch(text) if text else None
    return None if named is None else (named["job"], named["step"])


def _between_steps(events: Sequence[Event], start: int, last: int, first: int, end: int) -> int | None:
    """Return the position at which the second of two steps begins, None if they are not one after the other.

    The first step spans ``start`` to ``last``, the second is named from ``first`` to ``end``.
    """
    for position in range(last + 1, first + 1):
        if events[position].kind in BEGINS and not events[position].is_failure:
            return position
    ended = {task for event in events[start : last + 1] for task in _ended_tasks(event)}
    for position in range(last + 1, end + 1):
        tasks = _ended_tasks(events[position])
        if ended.intersection(tasks):
            behind = next((at for at in range(last + 1, position) if events[at].kind not in _ENDING), position)
            return min(behind, first)
        if position < first:
            ended.update(tasks)
    return None


def _ended_tasks(event: Event) -> set[tuple[str | None, int]]:
    """Return host and number of the tasks that a line of the launcher reports as ended."""
    if event.fields.get("names") != "task":
        return set()
    return {(event.fields.get("host"), task) for task in listed(event.fields.get("ranks") or event.fields.get("rank"))}
