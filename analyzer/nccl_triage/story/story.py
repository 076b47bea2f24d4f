"""The story of an input: its runs, each with its events in order, who is who in it and how it ended.

``tell_story`` puts events in order, splits them into runs, sets aside the lines that do not count and finds out how
each run ended. Facts and causes read the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from nccl_triage.engine.schema import RuleSet
from nccl_triage.learned.form import Form
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.producers import produced_signatures
from nccl_triage.story import (
    before_stop,
    error_codes,
    kernel_log,
    line_origins,
    order,
    other_programs,
    runs,
    survived_failures,
)
from nccl_triage.story.decisions import COUNTS, Decision, Grounds, Table
from nccl_triage.story.devices import Devices
from nccl_triage.story.identity import Identity
from nccl_triage.story.kernel_log import Aside
from nccl_triage.story.outcome import Outcome, Ways, outcome_of
from nccl_triage.story.view import View


@dataclass
class Run:
    """One run of a job: the events that count in order, its ranks and hosts, and how it ended."""

    events: list[Event]
    identity: Identity
    outcome: Outcome
    #: Lines of the run that do not count, and why.
    aside: list[Aside] = field(default_factory=list)
    #: Everything that the run printed, before anything was set aside.
    printed: list[Event] = field(default_factory=list)
    #: The line with which it begins, None for the first run of the input, and why it begins there.
    opened_by: Event | None = None
    begins: Decision | None = None
    #: The failures that count, each with the reason.
    counting: list[Aside] = field(default_factory=list)

    @cached_property
    def devices(self) -> Devices:
        """The GPUs and processes of the ranks."""
        return Devices(self.identity, self.printed)


@dataclass(slots=True)
class Story:
    """All runs of an input, and the one that the verdict is about (``told``)."""

    runs: list[Run]
    told: Run
    order_known: bool
    #: Why the verdict is about this run.
    chosen: Decision
    #: Events that tell of earlier jobs; they have no place among the lines of this one.
    remembered: list[Event] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        """How the run that the verdict is about ended."""
        return self.told.outcome


def tell_story(observations: Observations, rules: RuleSet, form: Form | None = None) -> Story:
    """Return the story of everything observed; without a model of ``form`` the rules alone say how runs ended."""
    everything = _with_kinds(observations.all_events(), rules)
    remembered = [event for event in everything if event.is_remembered]
    events, known = order.in_order([e for e in everything if not e.is_remembered], observations)
    events, foreign = other_programs.set_aside(
        line_origins.correct_torn_hosts(error_codes.apply_code_tables(events, rules)), observations
    )
    identity = Identity(observations, events)
    parts = runs.of_attempts(events, observations.sources)
    if not parts:
        parts = runs.split(events, identity.rank_of, observations.sources) if known else [runs.Part(events)]
    if len(parts) == 1:
        parts = runs.of_files(events, observations.sources) or parts
    model = form.ending if form is not None else None
    if len(parts) == 1:
        told = [_run(observations, parts[0].events, known, identity, Ways(model))]
    else:
        told = [
            _run(observations, p.events, known, Identity(observations, p.events), Ways(model, p is parts[-1]), p)
            for p in parts
        ]
    chosen = CHOICE.settle(told)
    last = told[_number_of(chosen) - 1]
    last.aside = [*foreign, *last.aside]
    return Story(told, last, known, chosen, remembered)


def _number_of(chosen: Decision) -> int:
    number = chosen.numbers["number"]
    return number if isinstance(number, int) else 1


CHOICE: Table[list[Run]] = Table("choice")


@CHOICE.condition("only-run")
def _only_run(told: list[Run]) -> Grounds | None:
    return Grounds((), {"number": 1}) if len(told) == 1 else None


@CHOICE.condition("last-run-with-end-or-work")
def _last_run_with_end_or_work(told: list[Run]) -> Grounds | None:
    known = [number for number, run in enumerate(told, 1) if _shows_its_end(run)]
    return Grounds((), {"number": known[-1], "runs": len(told)}) if known else None


def _shows_its_end(run: Run) -> bool:
    """Tell whether a run worked or ended by what its lines say; the last words of a script may look like an end, too."""
    found = run.outcome
    if not found.is_by_form:
        return found.is_well or found.is_bad
    return found.is_well and any(event.role == "progress" for event in run.events)


@CHOICE.condition("longest-run")
def _longest_run(told: list[Run]) -> Grounds | None:
    number = max(range(len(told)), key=lambda index: len(told[index].events)) + 1
    return Grounds((), {"number": number, "runs": len(told)})


def _run(
    observations: Observations,
    printed: list[Event],
    known: bool,
    identity: Identity,
    ways: Ways,
    part: runs.Part | None = None,
) -> Run:
    events, of_kernel = kernel_log.set_aside(printed, lambda: Devices(identity, printed))
    whole = View(observations, events, identity, known)
    judged = [
        item for scope in whole.scopes() for item in survived_failures.judge(scope, whole.rank, observations.sources)
    ]
    view, outcome = _ended(whole, judged, ways)
    at_work = outcome.is_well or outcome.state == "stopped"
    again = judged if at_work else survived_failures.without_output(judged)
    if again != judged:
        # The run did not end well, whatever it went on to print: what it had said before may be why.
        judged = again
        view, outcome = _ended(whole, judged, ways)
    late = before_stop.late_stops(view, outcome.decision) if outcome.was_before_stop else []
    decided = [*of_kernel, *judged]
    aside = [*(item for item in decided if item[1].answer != COUNTS), *late]
    gone = {id(event) for event, _ in aside}
    return Run(
        [event for event in view.events if id(event) not in gone],
        identity,
        outcome,
        aside,
        printed,
        part.opened_by if part is not None else None,
        part.decision if part is not None else None,
        [item for item in decided if id(item[0]) not in gone],
    )


def _ended(whole: View, judged: list[Aside], ways: Ways) -> tuple[View, Outcome]:
    """Return the events of a run that count, and how it ended."""
    survived = [item for item in judged if item[1].answer != COUNTS]
    gone = {id(event) for event, _ in survived}
    events = [event for event in whole.events if id(event) not in gone]
    view = View(whole.observations, events, whole.identity, whole.order_known)
    return view, outcome_of(view, survived, whole, ways)


def _with_kinds(events: list[Event], rules: RuleSet) -> list[Event]:
    """Set the kind of events that have none: those that producers made, not patterns of lines."""
    produced = produced_signatures()
    for event in events:
        if not event.kind:
            known = rules.signatures.get(event.signature) or produced.get(event.signature)
            if known is not None:
                event.kind = known.kind
    return events
