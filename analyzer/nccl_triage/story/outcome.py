"""How a run ended: finished, goes on, was stopped, failed, hangs, or the input ends before it did."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Literal, NamedTuple

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.parsers.tracebacks import lines_of
from nccl_triage.parsers.unknown_errors import SALIENT
from nccl_triage.recorder.compare import compare
from nccl_triage.story import exits
from nccl_triage.story.exceptions import ERROR_LEVELS, is_communication, is_launcher
from nccl_triage.story.survived_failures import ADVANCES, MOVES, NUMBERS
from nccl_triage.story.view import View

#: Kinds of lines of processes that end at slightly different times after the work. They are no failures.
FAREWELLS = (
    "rendezvous.failed", "connection.lost", "connection.refused", "process.lost", "process.stopped", "process.signalled",
    "teardown", "communicator.closed", "collective.error",
)  # fmt: skip

#: Kinds of lines that a process prints while it gets no further, and how many of them at the end prove it.
WAITS = (
    "waiting", "retry", "connection.refused", "address.unresolved", "rendezvous.failed", "collective.waiting", "collective.absent",
    "process.stalled", "call.timeout",
)  # fmt: skip
WAITED = 2
#: Kinds of failures by which a process gives up waiting in a collective.
HANGS = ("collective.timeout", "collective.absent", "process.stalled")
#: Kinds of lines that show a run at work. Lines of its start do not: it may hang right after them.
WORKS = (*ADVANCES, "recovered")
#: Lines at the end of a log that may follow its last words: what NCCL prints while it shuts down.
_LINES_BELOW = 3
_WARNING = "NCCL WARN "
_INFORMS = ("INFO", "I")
_ERROR = lazily(
    r"^(?:\S{1,60}: |\[[^\]]{1,60}\]:? ?){0,2}(?:\[(?i:error|fatal|critical)\]|(?i:error|fatal|critical)\b(?! ?(?:=|rate|bar)))"
)

#: Tools by which a person looks into a process from outside.
_FROM_OUTSIDE = ("py-spy", "pystack", "gdb")
#: How a run ended: "running" goes on to the end of the input, "stopped" was told to stop, "cut" is one that the input
#: ends before, "none" is an input without a job.
State = Literal["finished", "running", "stopped", "failed", "hung", "cut", "none"]


class Outcome(NamedTuple):
    """How a run ended, and the line that says so (None where it follows from what no line says)."""

    state: State
    event: Event | None = None

    @property
    def is_well(self) -> bool:
        """Whether the run finished or goes on."""
        return self.state in ("finished", "running")

    @property
    def is_bad(self) -> bool:
        """Whether the run came to a bad end."""
        return self.state in ("stopped", "failed", "hung")


def outcome_of(view: View) -> Outcome:
    """Return how a run ended, by those of its events that count."""
    if spoilt := [event for event in view.of(NUMBERS) if "lasts" in event.fields]:
        return Outcome("failed", spoilt[0])
    finish = finished(view)
    if finish is not None:
        return Outcome("finished", finish)
    bad = view.failures
    if not bad:
        return _without_failure(view)
    stop = next((event for event in bad if exits.stops_job(event)), None)
    if stop is None:
        return Outcome("hung" if _is_wait(bad[0]) else "failed", bad[0])
    before = bad[: bad.index(stop)] if view.order_known else []
    if any(_is_wait(event) for event in before[:1]):
        return Outcome("hung", bad[0])
    return Outcome("failed", bad[0]) if any(_is_fault(event) for event in before) else Outcome("stopped", stop)


def _is_wait(event: Event) -> bool:
    """Tell whether a process gave up waiting for others: by then the job had hung for a while."""
    return event.kind in HANGS


def _is_fault(event: Event) -> bool:
    """Tell whether a failure is one of the job itself; a stop after it is only the reaction of its launcher or user."""
    return event.role == "root" or (
        event.kind == "exception" and not is_communication(event) and not is_launcher(event)
    )


def _without_failure(view: View) -> Outcome:
    """Return the outcome of a run without a line of failure: it goes on, waits, or the input ends before it did."""
    if spoilt := view.of(NUMBERS):
        return Outcome("failed", spoilt[0])
    if said := view.of("job.finished") + view.telling(end="orderly"):
        return Outcome("finished", said[-1])
    if (bad := _bad_end(view)) is not None:
        return bad
    if leaving := view.telling("end"):
        return Outcome("finished", leaving[0])  # processes ended, and none said that anything was wrong
    if stopped := view.telling(stops="cluster"):
        # A cluster is told to stop when its driver is gone: the job is over, and the log that says how is not here.
        return Outcome("cut" if _works(view) or view.of("teardown") else "stopped", stopped[-1])
    if worked := _works(view):
        return Outcome("running", worked[-1])
    if view.observations.recorder:
        return Outcome("running", view.events[-1] if view.events else None)
    known = [event for event in view.events if event.kind not in ("salient", "speaker", "note", "variable", "setting")]
    return Outcome("cut", known[-1]) if known else Outcome("none")


def _works(view: View) -> list[Event]:
    """Return the lines that show the job at work: its steps, or a server that is ready for requests."""
    return [
        event
        for event in view.events
        if event.role == "progress" and (event.kind in WORKS or event.fields.get("engine") == "serving")
    ]


def _bad_end(view: View) -> Outcome | None:
    """Return the outcome of a run that ends with trouble which is no failure by itself, None if it does not."""
    table = view.observations.recorder
    # Ranks that wait for an operation that all have started are at work, unless one gave it up.
    if table and any(finding.kind != "entered" or finding.given_up for finding in compare(table).findings):
        return Outcome("hung", view.events[-1] if view.events else None)
    if said := _unknown_trouble(view):
        return Outcome("failed", said[-1])
    worked = _works(view)
    if (dumped := _dumped_apart(view, worked)) is not None:
        return Outcome("hung", dumped)
    if not view.order_known:
        return None
    dumps = view.observations.recorder.sources()
    behind = view.events[view.position(worked[-1]) + 1 if worked else 0 :]
    behind = [event for event in behind if event.source not in dumps]
    stacks = [e for e in behind if e.kind == "exception.frame" and e.fields.get("language", "python") == "python"]
    if stacks:
        return Outcome("hung" if any("frames" in event.fields for event in stacks) else "failed", stacks[-1])
    # A process that waited and then got further in its set-up waits no more.
    further = max((n for n, e in enumerate(behind) if e.role == "progress" and e.kind in MOVES), default=-1)
    behind = behind[further + 1 :]
    waits = [event for event in behind if event.kind in WAITS]
    if len(waits) >= WAITED or any("awaits" in event.fields for event in behind):
        return Outcome("hung", behind[-1])
    return None


def _dumped_apart(view: View, worked: list[Event]) -> Event | None:
    """Return a stack from a file of its own: somebody dumped it because the job hangs, whatever its log said before.

    A program's own ``faulthandler`` may write one every ten minutes of a job that runs well.
    """
    logs = {event.source for event in worked}
    stacks = [event for event in view.of("exception.frame") if event.fields.get("tool") in _FROM_OUTSIDE]
    if _most_move(stacks) or view.telling(examined="advanced"):
        return None
    examined = view.telling(examined="hang")
    return next((event for event in stacks if event.source not in logs), examined[-1] if examined else None)


#: A process that polls goes to and fro in the innermost frames of its stack.
_POLLING = 2


def _most_move(stacks: list[Event]) -> bool:
    """Tell whether most of the processes that were dumped repeatedly were elsewhere in their last dump: they work."""
    frames: dict[tuple[str, int], list[list[str]]] = defaultdict(list)
    for event in stacks:
        if event.context.pid is not None:
            frames[event.source, event.context.pid].append(event.fields.get("frames", "").split("\n")[::-1])
    twice = [found[-2:] for found in frames.values() if len(found) > 1]
    return 2 * sum(_parted(before, after) for before, after in twice) > len(twice)


def _parted(before: list[str], after: list[str]) -> bool:
    """Tell whether two stacks, the outermost frames first, differ by more than the frames of a loop that polls."""
    common = next((n for n, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    shared = min(len(before), len(after)) if common is None else common
    return max(len(before), len(after)) - shared > _POLLING


def finished(view: View) -> Event | None:
    """Return the line that shows that the run finished, or None.

    Every rank must say so after its last failure, or a process that speaks for the job. What processes print while they
    end at slightly different times is no failure.
    """
    found, ended = view.of("job.finished"), view.of("process.finished")
    if not view.order_known:
        return _each_file(view, found)
    if ended and len(view.identity.ranks) <= view.count("process.finished") > 1 and not view.count("process.exit"):
        last = view.position(view.failures[-1]) if view.failures else -1
        return ended[-1] if view.position(ended[-1]) > last else None
    if (event := _counted_out(view) or _left_first(view)) is not None:
        return event
    if not found or any(exit_.code != 0 for exit_ in exits.exits_of(view)):
        return None
    said: dict[int | None, int] = {}
    for event in found:
        said[view.rank(event)] = view.position(event)
    if None not in said and not set(view.identity.ranks) <= set(said):
        return None
    last, world = max(said.values()), view.identity.world_size
    whole = world is not None and 0 < world <= len(said) and None not in said
    # The line above a traceback ("Exception in thread ..") means what its exception does.
    raised = {(e.source, lines[0] - 1): e for e in view.of("exception") if (lines := lines_of(e)) is not None}
    for event in view.failures:
        end = said.get(view.rank(event), said.get(None, last))
        if view.position(event) > end and not _is_farewell(raised.get((event.source, event.line), event)):
            return None
        if view.position(event) < end and None not in said and not whole and _is_unknown_end(view, event):
            return None  # a process without a name failed, and may be a rank that did not say that it finished
    return found[-1]


def _counted_out(view: View) -> Event | None:
    """Return the line of the last step, if all trouble is that processes ended after it."""
    ends_ = [
        e
        for e in view.events
        if (e.kind == "step" or ("step" in e.fields and e.kind == "task.finished")) and _is_last(e)
    ]
    if not ends_ or not view.failures:
        return None
    last = view.position(ends_[-1])
    later = [
        e
        for e in view.events[last + 1 :]
        if e.role == "progress" and (e.source, e.line) != (ends_[-1].source, ends_[-1].line)
    ]
    well = all(view.position(e) > last and _is_farewell(e) and not e.fields.get("exitcode") for e in view.failures)
    return ends_[-1] if well and not later else None


def _left_first(view: View) -> Event | None:
    """Return the first line of processes that exit, if all trouble came after it and is how processes exit."""
    worked = [event for event in view.events if event.role == "progress" and event.kind in ADVANCES]
    leaving = view.telling("end")
    if not worked or not leaving or not view.failures:
        return None
    place = view.position(leaving[0])
    if place < view.position(worked[-1]):
        return None
    well = all(
        view.position(e) > place
        and not e.fields.get("exitcode")
        and (_is_farewell(e) or (e.kind == "exception" and is_launcher(e)))
        for e in view.failures
    )
    return leaving[0] if well else None


def _is_last(event: Event) -> bool:
    step, total = event.number("step"), event.number("total")
    return step is not None and total is not None and step >= total > 0


def _is_farewell(event: Event) -> bool:
    return event.kind in FAREWELLS or (event.kind == "exception" and is_communication(event))


def _is_unknown_end(view: View, event: Event) -> bool:
    """Tell whether a line may be the end of a process without a rank: an uncaught exception or a root cause."""
    if view.rank(event) is not None or event.context.level in _INFORMS:
        return False
    return event.role == "root" or (event.kind == "exception" and not is_communication(event))


def _each_file(view: View, found: list[Event]) -> Event | None:
    """Return the last such line of files without a common clock, if each says after its failures that its rank finished."""
    said = {event.source: event.line for event in found}
    if found and all(e.context.level in _INFORMS and _is_farewell(e) for e in view.failures):
        return found[-1]  # what is only logged for information is how a cluster clears up
    if not found or not set(view.identity.ranks) <= set(view.ranks(found)) or exits.exits_of(view):
        return None
    return found[-1] if all(event.line < said.get(event.source, 0) for event in view.failures) else None


def _unknown_trouble(view: View) -> list[Event]:
    """Return the lines with which a log ends: warnings of NCCL, or errors that no signature knows."""
    found = _last_words(view)
    # Where there are several logs, one may end early while the job goes on.
    alone = len(view.observations.sources) == 1
    return [
        e for e in found if _WARNING in e.text or (alone and (e.context.level in ERROR_LEVELS or _ERROR.search(e.text)))
    ]


def _last_words(view: View) -> list[Event]:
    """Return the lines that sound like trouble at the end of a log, after its last step."""
    last_step: dict[str, int] = {}
    for event in view.events:
        if event.role != "progress":
            continue
        last_step[event.source] = max(event.line, last_step.get(event.source, 0))
    found = []
    for event in view.of(SALIENT):
        info = view.observations.sources.get(event.source)
        if (
            info is not None
            and info.lines - event.line - _trace_below(view, event) <= _LINES_BELOW
            and event.line > last_step.get(event.source, 0)
        ):
            found.append(event)
    return found


def _trace_below(view: View, event: Event) -> int:
    """Return how many lines of NCCL's own trace of an error stand below a line."""
    lines = view.once(_trace_lines).get(event.source, [])
    return len(lines) - bisect_right(lines, event.line)


def _trace_lines(view: View) -> dict[str, list[int]]:
    """Return the line numbers of NCCL's own traces by source."""
    found: dict[str, list[int]] = {}
    for event in view.having("exception.frame", "func", "result"):
        found.setdefault(event.source, []).append(event.line)
    return {source: sorted(lines) for source, lines in found.items()}
