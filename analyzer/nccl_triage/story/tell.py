"""Tell the story: put events in order, split them into runs, and find out how each one ended."""

from __future__ import annotations

from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.producers import produced_signatures
from nccl_triage.story import coded, fates, kernel_log, order, outcome, runs, speakers, torn
from nccl_triage.story.devices import Devices
from nccl_triage.story.identity import Identity
from nccl_triage.story.model import Run, Story
from nccl_triage.story.view import View


def tell(observations: Observations, rules: RuleSet) -> Story:
    """Return the story of everything observed."""
    everything = _with_kinds(observations.all_events(), rules)
    remembered = [event for event in everything if event.is_remembered]
    events, known = order.in_order([e for e in everything if not e.is_remembered], observations)
    events, foreign = speakers.sort_out(torn.mend(coded.settle(events, rules)), observations)
    identity = Identity(observations, events)
    parts = runs.split(events, identity.rank_of) if known else [runs.Part(events)]
    if len(parts) == 1:
        told = [_run(observations, events, known, identity)]
    else:
        told = [_run(observations, p.events, known, Identity(observations, p.events), p.opened_by) for p in parts]
    last = _last(told)
    last.aside = [*foreign, *last.aside]
    return Story(told, last, known, remembered)


def _last(told: list[Run]) -> Run:
    """Return the run that the verdict is about: the last one of which more is known than that it began."""
    known = [run for run in told if run.outcome.is_well or run.outcome.is_bad]
    return known[-1] if known else max(told, key=lambda run: len(run.events))


def _run(
    observations: Observations, printed: list[Event], known: bool, identity: Identity, opened_by: Event | None = None
) -> Run:
    events, aside = kernel_log.sort_out(printed, lambda: Devices(identity, printed))
    whole = View(observations, events, identity, known)
    survived = [item for scope in whole.scopes() for item in fates.survived(scope, whole.rank)]
    gone = {id(event) for event, _ in survived}
    view = View(observations, [event for event in events if id(event) not in gone], identity, known)
    return Run(view.events, identity, outcome.of(view), [*aside, *survived], printed, opened_by)


def _with_kinds(events: list[Event], rules: RuleSet) -> list[Event]:
    """Give the events their kinds that came without: those that are no pattern of a line."""
    produced = produced_signatures()
    for event in events:
        if not event.kind:
            known = rules.signatures.get(event.signature) or produced.get(event.signature)
            if known is not None:
                event.kind = known.kind
    return events
