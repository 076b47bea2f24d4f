"""How a run ended: finished, goes on, was stopped, failed, hangs, or the input ends before it did.

The rules are the table "outcome" of ``rules/story``: the first one that holds decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, NamedTuple

from nccl_triage.lazy_regex import lazily
from nccl_triage.learned import describe, ending
from nccl_triage.learned.ending import Ending
from nccl_triage.learned.linear import Linear
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import lines_below
from nccl_triage.parsers.tracebacks import lines_of
from nccl_triage.parsers.unknown_errors import SALIENT
from nccl_triage.recorder.compare import compare
from nccl_triage.story import before_stop, exits, survived_failures
from nccl_triage.story.decisions import Decision, Grounds, Number, Table, by
from nccl_triage.story.exceptions import ERROR_LEVELS, is_communication, is_launcher
from nccl_triage.story.presence import Presence
from nccl_triage.story.runs import SHARED
from nccl_triage.story.survived_failures import ADVANCES, MOVES, NUMBERS
from nccl_triage.story.view import View

#: Kinds of lines that show a run at work. Lines of its start do not: it may hang right after them.
WORKS = (*ADVANCES, "recovered")
#: What processes do together, and what they cannot do without.
_NEEDED = (*SHARED, "hardware", "memory")
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
    """How a run ended, the line that says so (None where it follows from what no line says), and the rule that decided."""

    state: State
    event: Event | None
    decision: Decision

    @property
    def is_well(self) -> bool:
        """Whether the run finished or goes on."""
        return self.state in ending.WELL

    @property
    def is_bad(self) -> bool:
        """Whether the run came to a bad end."""
        return self.state in ("stopped", "failed", "hung")

    @property
    def is_by_form(self) -> bool:
        """Whether no line of the run says so: it only looks like runs that ended in this way."""
        return self.decision.rule.removeprefix("outcome.") in _BY_FORM

    @property
    def was_before_stop(self) -> bool:
        """Whether the run had failed or hung before it was told to stop."""
        return self.decision.rule in _BEFORE_STOP


class Ways(NamedTuple):
    """What the outcome may rest on beside the lines: a model of form and place, if there is one.

    ``at_end``: no other run comes behind this one.
    """

    model: Linear | None = None
    at_end: bool = True


#: Exit codes of processes that were told to stop: the signal, what a shell makes of it, and Python's after Ctrl-C.
_CODES_OF_STOPS = frozenset({-2, -15, 130, 143, 1, 0})
#: Rules by which a stop, if one came, only ended what had failed or hung before.
_BEFORE_STOP = frozenset(
    f"outcome.{name}"
    for name in (
        "bad-numbers-last",
        "waited-before-stop",
        "failed-before-stop",
        "failed-before-work",
        "stalled-before-stop",
    )
)
#: Rules that ask the model of form and place, each for one way to end.
_BY_FORM = {
    "ends-like-finished-runs": ending.FINISHED,
    "ends-like-running-jobs": ending.RUNNING,
    "ends-like-failures": ending.FAILED,
    "ends-like-stopped-runs": ending.STOPPED,
    "ends-like-cut-logs": ending.CUT,
    "ends-like-other-texts": ending.NONE,
}


@dataclass
class _End:
    """A run whose end is asked for, and what its rules ask in common."""

    view: View
    #: Failures that were set aside, each with the reason, and the run before anything was set aside.
    survived: Sequence[tuple[Event, Decision]]
    whole: View
    ways: Ways
    #: What the rules alone decided; None while they are asked.
    first: Decision | None = None

    @cached_property
    def form(self) -> Ending | None:
        """How runs of this form end, where the rules alone are not certain."""
        if self.first is None or self.ways.model is None or not RULES.is_uncertain(self.first):
            return None
        if self.is_examined:
            return None
        sources = self.view.observations.sources
        return ending.judge(self.ways.model, ending.features(self.whole.events, sources, self.ways.at_end))

    @cached_property
    def is_examined(self) -> bool:
        """Whether somebody looked into the job from outside: then the input does not end as its log does."""
        outside = any(event.fields.get("tool") in _FROM_OUTSIDE for event in self.whole.of("exception.frame"))
        return outside or bool(self.whole.telling("examined") or self.whole.observations.recorder)

    @property
    def bad(self) -> list[Event]:
        """The failures that count, in order."""
        return self.view.failures

    @cached_property
    def stop(self) -> Event | None:
        """The line that says that the whole job was told to stop."""
        return next((event for event in self.bad if exits.stops_job(event)), None)

    @cached_property
    def bad_before_stop(self) -> list[Event]:
        """The failures that certainly came before the stop: above it in its file, where the order of files is unknown."""
        stop, known = self.stop, self.view.order_known
        if stop is None:
            return []
        stops = {(event.source, event.line) for event in self.bad if before_stop.is_stop(event)}
        before = self.bad[: self.bad.index(stop)] if known else [e for e in self.bad if e.source == stop.source]
        return [e for e in before if (e.source, e.line) not in stops and (known or e.line < stop.line)]

    @cached_property
    def stops(self) -> dict[str, Event]:
        """The first line of each source by which the job or a process is told to stop, if the whole job was."""
        return before_stop.stops_of(self.view) if self.stop is not None else {}

    @cached_property
    def worked(self) -> list[Event]:
        """The lines that show the job at work: its steps, or a server that is ready for requests."""
        return [
            event
            for event in self.view.events
            if event.role == "progress" and (event.kind in WORKS or event.fields.get("engine") == "serving")
        ]

    @cached_property
    def all_exited(self) -> list[Event]:
        """The lines that report exit code 0, if there is one for every rank and no other exit."""
        view, ended = self.view, self.view.of("process.finished")
        every = len(view.identity.ranks) <= view.count("process.finished") > 1 and not view.count("process.exit")
        return ended if view.order_known and every else []

    @cached_property
    def behind(self) -> list[Event]:
        """The lines behind the last progress, without those of dumps."""
        view = self.view
        dumps = view.observations.recorder.sources()
        behind = view.events[view.position(self.worked[-1]) + 1 if self.worked else 0 :]
        return [event for event in behind if event.source not in dumps]

    @cached_property
    def stacks_behind(self) -> list[Event]:
        """The parts of tracebacks and stacks of Python behind the last progress."""
        return [
            e for e in self.behind if e.kind == "exception.frame" and e.fields.get("language", "python") == "python"
        ]

    @cached_property
    def cluster_stops(self) -> Event | None:
        """The last line by which a cluster is told to stop."""
        found = self.view.telling(stops="cluster")
        return found[-1] if found else None

    @property
    def known(self) -> list[Event]:
        """The lines of the run that say more than who printed them."""
        return [e for e in self.view.events if e.kind not in ("salient", "speaker", "note", "variable", "setting")]


RULES: Table[_End] = Table("outcome")


def outcome_of(
    view: View,
    survived: Sequence[tuple[Event, Decision]],
    whole: View,
    ways: Ways = Ways(),  # noqa: B008
) -> Outcome:
    """Return how a run ended, by those of its events that count (``view``) of all of its events (``whole``).

    The line that says so is the first one by which the rule holds.
    """
    end = _End(view, survived, whole, ways)
    end.first = RULES.settle(end)
    decision = RULES.overrule(end) or end.first
    event = decision.events[0] if decision.events else None
    state: State = decision.answer  # type: ignore[assignment]
    return Outcome(state, event, decision)


@RULES.condition("bad-numbers-last")
def _bad_numbers_last(end: _End) -> Grounds | None:
    return by(next((event for event in end.view.of(NUMBERS) if "lasts" in event.fields), None))


@RULES.condition("files-say-finished")
def _files_say_finished(end: _End) -> Grounds | None:
    return None if end.view.order_known else by(_each_file(end.view, end.view.of("job.finished")))


@RULES.condition("all-exited-with-0")
def _all_exited_with_0(end: _End) -> Grounds | None:
    if not end.all_exited:
        return None
    last = end.view.position(end.bad[-1]) if end.bad else -1
    return by(end.all_exited[-1]) if end.view.position(end.all_exited[-1]) > last else None


@RULES.condition("last-step-then-ends")
def _last_step_then_ends(end: _End) -> Grounds | None:
    return None if end.all_exited or not end.view.order_known else by(_counted_out(end.view))


@RULES.condition("left-before-trouble")
def _left_before_trouble(end: _End) -> Grounds | None:
    return None if end.all_exited or not end.view.order_known else by(_left_first(end.view))


@RULES.condition("said-after-failures")
def _said_after_failures(end: _End) -> Grounds | None:
    return None if end.all_exited or not end.view.order_known else by(_said(end.view))


@RULES.condition("waited-before-stop")
def _waited_before_stop(end: _End) -> Grounds | None:
    waited = end.stop is not None and any(_is_wait(event) for event in end.bad_before_stop[:1])
    return by(end.bad[0], *_listed(end.stop)) if waited else None


@RULES.condition("failed-before-stop")
def _failed_before_stop(end: _End) -> Grounds | None:
    fault = next(filter(_is_fault, end.bad_before_stop), None)
    if fault is None:
        fault = next(iter(before_stop.failed_exits(end.view, end.stops)), None)
    return None if fault is None else by(end.bad[0], fault, *_listed(end.stop))


@RULES.condition("failed-before-work")
def _failed_before_work(end: _End) -> Grounds | None:
    kinds = RULES.kinds["failed-before-work"]
    fault = next((event for event in end.bad_before_stop if event.kind in kinds and not is_launcher(event)), None)
    # Connections also break because a job is stopped, but only those of a job that had come up.
    return None if fault is None or end.worked else by(fault, *_listed(end.stop))


@RULES.condition("stalled-before-stop")
def _stalled_before_stop(end: _End) -> Grounds | None:
    found = before_stop.stalled(end.view, end.stops, RULES.limits)
    return None if found is None else Grounds(found[:2], {"seconds": round(found[2])})


@RULES.condition("told-to-stop")
def _told_to_stop(end: _End) -> Grounds | None:
    return by(end.stop)


@RULES.condition("interrupted")
def _interrupted(end: _End) -> Grounds | None:
    first = [event for event in end.bad if (event.source, event.line) == (end.bad[0].source, end.bad[0].line)]
    told = next((event for event in first if event.kind in RULES.kinds["interrupted"]), None)
    if told is None or any(map(_is_fault, end.bad)):
        return None
    # A launcher also stops its workers because one of them was killed or failed without a word.
    codes = {found.code for found in exits.exits_of(end.view)}
    return by(told) if codes <= _CODES_OF_STOPS else None


@RULES.condition("gave-up-waiting")
def _gave_up_waiting(end: _End) -> Grounds | None:
    return by(end.bad[0]) if end.bad and _is_wait(end.bad[0]) else None


@RULES.condition("rank-found-gone")
def _rank_found_gone(end: _End) -> Grounds | None:
    others = any(event.fields.get("state") != "gone" for event in end.view.telling(examined="hang"))
    found_gone = bool(end.bad) and all(event.fields.get("examined") == "gone" for event in end.bad)
    return by(end.bad[0]) if found_gone and others else None


@RULES.condition("trouble-unanswered")
def _trouble_unanswered(end: _End) -> Grounds | None:
    certain = any(_is_certain(end.view, event) for event in end.bad)
    return None if certain else by(next(iter(end.bad), None))


def _is_certain(view: View, event: Event) -> bool:
    """Tell whether a program cannot go on after a failure: its end, trouble with others, or the last words of its log."""
    if event.kind in survived_failures.RULES.kinds["end-of-process"] or event.fields.get("fate") == "uncaught":
        return True
    return event.kind.partition(".")[0] in _NEEDED or _is_last_line(view, event)


@RULES.condition("failure-counts")
def _failure_counts(end: _End) -> Grounds | None:
    return by(end.bad[0]) if end.bad else None


@RULES.condition("bad-numbers")
def _bad_numbers(end: _End) -> Grounds | None:
    return by(next(iter(end.view.of(NUMBERS)), None))


@RULES.condition("said-finished")
def _said_finished(end: _End) -> Grounds | None:
    said = end.view.of("job.finished") + end.view.telling(end="orderly")
    return by(said[-1]) if said else None


@RULES.condition("recorders-differ")
def _recorders_differ(end: _End) -> Grounds | None:
    table = end.view.observations.recorder
    # Ranks that wait for an operation that all have started are at work, unless one gave it up.
    if table and any(finding.kind != "entered" or finding.given_up for finding in compare(table).findings):
        return Grounds(tuple(end.view.events[-1:]))
    return None


@RULES.condition("unknown-error-last")
def _unknown_error_last(end: _End) -> Grounds | None:
    said = _unknown_trouble(end.view)
    return Grounds((said[-1],), {"lines": int(RULES.limits["lines_below"])}) if said else None


@RULES.condition("stack-dumped-by-hand")
def _stack_dumped_by_hand(end: _End) -> Grounds | None:
    return by(_dumped_apart(end.view, end.worked))


@RULES.condition("stacks-last")
def _stacks_last(end: _End) -> Grounds | None:
    stacks = end.stacks_behind if end.view.order_known else []
    return by(stacks[-1]) if any("frames" in event.fields for event in stacks) else None


@RULES.condition("traceback-last")
def _traceback_last(end: _End) -> Grounds | None:
    return by(end.stacks_behind[-1]) if end.view.order_known and end.stacks_behind else None


@RULES.condition("waits-last")
def _waits_last(end: _End) -> Grounds | None:
    if not end.view.order_known:
        return None
    # A process that waited and then got further in its set-up waits no more.
    further = max((n for n, e in enumerate(end.behind) if e.role == "progress" and e.kind in MOVES), default=-1)
    behind = end.behind[further + 1 :]
    waits = [event for event in behind if event.kind in RULES.kinds["waits-last"]]
    if len(waits) >= RULES.limits["waits"] or any("awaits" in event.fields for event in behind):
        return Grounds((behind[-1], *waits[:1]), {"waits_seen": len(waits)})
    return None


@RULES.condition("processes-left")
def _processes_left(end: _End) -> Grounds | None:
    leaving = end.view.telling("end")
    return by(leaving[0]) if leaving else None  # processes ended, and none said that anything was wrong


@RULES.condition("cluster-stopped-after-work")
def _cluster_stopped_after_work(end: _End) -> Grounds | None:
    # A cluster is told to stop when its driver is gone: the job is over, and the log that says how is not here.
    return by(end.cluster_stops) if end.worked or end.view.of("teardown") else None


@RULES.condition("cluster-stopped")
def _cluster_stopped(end: _End) -> Grounds | None:
    return by(end.cluster_stops)


@RULES.condition("silent-after-exception")
def _silent_after_exception(end: _End) -> Grounds | None:
    # A program that logged an exception and printed more may have gone on to its end, without working again.
    at_work = _at_work(end)
    if at_work is None:
        return None
    last = end.whole.position(at_work)
    caught = next(
        (
            event
            for event, decision in end.survived
            if decision.answer == "caught" and "below" in event.fields and end.whole.position(event) > last
        ),
        None,
    )
    return None if caught is None else Grounds((at_work, caught))


@RULES.condition("rank-files-alone")
def _rank_files_alone(end: _End) -> Grounds | None:
    last = {event.source: event for event in end.worked}
    if end.is_examined or all(_is_last(event) for event in last.values()):
        return None
    found = Presence(end.whole)
    sources = {event.source for event in end.whole.events}
    return by(end.worked[-1]) if found.by_file and sources == found.of_one_rank else None


@RULES.condition("at-work")
def _still_at_work(end: _End) -> Grounds | None:
    return by(end.worked[-1]) if end.worked else None


@RULES.condition("recorded-at-work")
def _recorded_at_work(end: _End) -> Grounds | None:
    return Grounds(tuple(end.view.events[-1:])) if end.view.observations.recorder else None


@RULES.condition("input-ends")
def _input_ends(end: _End) -> Grounds | None:
    return by(end.known[-1]) if end.known else None


@RULES.condition("no-job")
def _no_job(end: _End) -> Grounds | None:
    return Grounds()


def _by_form(end: _End, label: str) -> Grounds | None:
    """Return the grounds to say that a run ended in a way, by its form alone, if that is so and the rules say another."""
    form, first = end.form, end.first
    if form is None or first is None or _way_by_form(form, first.answer) != label or first.answer == label:
        return None
    probability = form.well if label in ending.WELL else form.probabilities[label]
    numbers: dict[str, Number] = {
        "probability": round(probability, 2),
        "features": describe.features(form.reasons(label)),
    }
    return Grounds(tuple(end.whole.events[-1:]), numbers)


for _name, _label in _BY_FORM.items():
    RULES.condition(_name)(partial(_by_form, label=_label))


def _way_by_form(form: Ending, answer: str) -> str:
    """Return how a run ended by its form, where the rules are not certain of their answer."""
    if answer in ending.WELL:
        if form.well < RULES.limits["doubted"]:
            return form.worst
        # Lines that say that a job finished know it; a last step does not know that it was the last.
        return form.best if answer == ending.RUNNING and form.well >= RULES.limits["likely"] else answer
    if form.well >= RULES.limits["believed"]:
        return form.best
    if answer == ending.NONE:
        return form.worst  # that no line is known says little about what an input is
    return form.worst if form.probabilities[form.worst] >= RULES.limits["likely"] else answer


def _at_work(end: _End) -> Event | None:
    """Return the last line of a run that is at work as far as its lines or its recorders show."""
    if end.worked:
        return end.worked[-1]
    return end.view.events[-1] if end.view.observations.recorder and end.view.events else None


def _listed(event: Event | None) -> list[Event]:
    return [] if event is None else [event]


def _is_wait(event: Event) -> bool:
    """Tell whether a process gave up waiting for others: by then the job had hung for a while."""
    return event.kind in RULES.kinds["gave-up-waiting"]


def _is_fault(event: Event) -> bool:
    """Tell whether a failure is one of the job itself; a stop after it is only the reaction of its launcher or user."""
    if event.role == "root" or event.kind in RULES.kinds["failed-before-stop"]:
        return True
    return event.kind == "exception" and not is_communication(event) and not is_launcher(event)


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
    return max(len(before), len(after)) - shared > RULES.limits["polling"]


def _said(view: View) -> Event | None:
    """Return the line by which the run says that it finished, or None.

    Every rank must say so after its last failure, or a process that speaks for the job. What processes print while they
    end at slightly different times is no failure.
    """
    found = view.of("job.finished")
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
    return event.kind in RULES.kinds["last-step-then-ends"] or (event.kind == "exception" and is_communication(event))


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
    alone = sum(info.log is None for info in view.observations.sources.values()) == 1
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
        below = lines_below(view.observations.sources, event.source, event.line)
        if (
            below is not None
            and below - _trace_below(view, event) <= RULES.limits["lines_below"]
            and event.line > last_step.get(event.source, 0)
        ):
            found.append(event)
    return found


def _is_last_line(view: View, event: Event) -> bool:
    """Tell whether its source ends with a line, but for a few that may follow the last words of a log."""
    below = lines_below(view.observations.sources, event.source, event.last_line)
    return below is not None and below <= RULES.limits["lines_below"]


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
