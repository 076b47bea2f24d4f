"""Add up the evidence for each cause, discount consequences of other causes, and turn scores into confidences.

The score of a cause is the sum of the log-odds of its evidence. The second and later items count less, since they are
rarely independent. The leading cause with a root event explains the cascade that it lists under ``explains``: evidence for
other causes that rests on those events alone is discounted. Confidences are a softmax over all causes and ``unknown``,
with a temperature that was fitted on labelled cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

from nccl_triage.classifier.vote import Vote
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.engine.match import expand, stands_for
from nccl_triage.engine.schema import WEIGHTS, Cause, Evidence
from nccl_triage.observations.event import Event
from nccl_triage.story.decisions import Decision, answer_in_words

#: Score of ``unknown``, which the evidence for a cause has to exceed.
UNKNOWN_SCORE = 1.5
#: Softmax temperature, fitted on labelled cases (``make evaluate`` prints the calibration error).
TEMPERATURE = 0.55
#: How much the n-th strongest item of a cause counts.
_DIMINISH = (1.0, 0.6, 0.4, 0.25, 0.15)
#: Share of evidence that remains if another cause explains it.
EXPLAINED_SHARE = 0.15
#: Least score of a cause that explains the evidence for others.
EXPLAINER_SCORE = 3.0
#: Bonus for the cause with the earliest root event, if several have root events.
FIRST_FAULT = 1.0
#: Share of the classifier's vote that counts if the rules are in doubt, and if they are sure; share of one against a
#: cause. Fitted on the open third of corpus/wild, each log by a model that saw none of its repository.
VOTE_SHARE, VOTE_SHARE_SURE, VOTE_AGAINST = 0.4, 0.2, 1.5
#: The rules are sure if their first cause leads by this much over the next one or over ``unknown``.
SURE_LEAD = 0.8
#: Highest score of a cause that rests on the vote alone: below even odds against ``unknown``.
VOTE_ALONE = UNKNOWN_SCORE - 0.05
#: Lead over ``unknown`` and over its rivals that doubt leaves to the leading cause.
LEAST_LEAD = 0.5
#: Highest confidence of a cause that rests on silence alone, and of one that rests on a single strong item.
SILENCE_CAP, ALONE_CAP = 0.6, 0.9
#: Least log-odds of the items on which a cause is said to rest.
TELLING = WEIGHTS["moderate"]
#: Facts that infer something from missing output.
SILENT_FACTS = frozenset(
    {
        "progress.stalled_ranks", "progress.silent_ranks", "progress.missing_ranks", "progress.init_missing_ranks",
        "progress.lost_host_ranks", "collective.left_out_ranks", "collective.outlasted_ranks",
    }
)  # fmt: skip
#: Id of the evidence that represents the classifier's vote.
VOTE_ID = "classifier-vote"
#: Id of the evidence against a cause whose lines do not count.
SET_ASIDE_ID = "set-aside"


@dataclass(slots=True)
class Contribution:
    """An item of evidence that holds, and what it adds to the score."""

    evidence: Evidence
    events: list[Event]
    applied: float
    against: bool = False
    explained_by: str | None = None


@dataclass(slots=True)
class Weighed:
    """A cause with its contributions, score and confidence."""

    cause: Cause
    contributions: list[Contribution] = field(default_factory=list)
    score: float = 0.0
    confidence: float = 0.0

    @property
    def for_items(self) -> list[Contribution]:
        """The contributions in favour of the cause, strongest first."""
        return [item for item in self.contributions if not item.against]

    @property
    def rule_items(self) -> list[Contribution]:
        """The contributions in favour of the cause that come from rules. Only these can name a culprit."""
        return [item for item in self.for_items if item.evidence.id != VOTE_ID]

    def root_position(self, case: Case) -> int | None:
        """Return the position of the earliest root event of the cause."""
        positions = [case.position(e) for item in self.rule_items for e in item.events if e.role == "root"]
        return min(positions) if positions else None


def gather(case: Case) -> list[Weighed]:
    """Evaluate the evidence of every cause, and return the causes that have some in their favour."""
    conditions, aside = Conditions(case), _Aside(case)
    found: list[Weighed] = []
    for cause in case.rules.causes.values():
        if _is_ruled_out(cause, conditions):
            continue
        weighed = Weighed(cause)
        for against, items in ((False, cause.evidence), (True, cause.against)):
            for item in items:
                events = supporting(item, case, conditions)
                if events is not None:
                    sign = -1 if against else 1
                    weighed.contributions.append(Contribution(item, events, sign * item.log_odds, against))
        set_aside = _set_aside(weighed, aside, conditions)
        if set_aside is not None:
            weighed.contributions.append(set_aside)
        weighed.contributions.sort(key=lambda item: _precedence(case, item))
        if weighed.for_items:
            found.append(weighed)
    return found


def _is_ruled_out(cause: Cause, conditions: Conditions) -> bool:
    return cause.ruled_out is not None and conditions.holds(cause.ruled_out)[0]


class _Aside:
    """The failures that do not count. They are often many lines of few signatures."""

    def __init__(self, case: Case) -> None:
        self._told = [(event, reason) for event, reason in case.aside if event.is_failure]
        self._kinds = {event.signature: event.kind for event, _ in self._told}

    def supporting(self, cause: Cause, conditions: Conditions) -> list[tuple[Event, Decision]]:
        """Return the events that would be evidence for a cause, each with the reason why it does not count."""
        asked: dict[str, list[Evidence]] = {}
        for item in cause.evidence if self._kinds else ():
            names = {name for pattern in item.signatures for name in expand(pattern, self._kinds)}
            if names and (item.when is None or conditions.holds(item.when)[0]):
                for name in names:
                    asked.setdefault(name, []).append(item)
        return [
            (event, reason)
            for event, reason in (self._told if asked else ())
            if any(
                item.where is None or conditions.selects(item.where, event) for item in asked.get(event.signature, ())
            )
        ]


def _set_aside(weighed: Weighed, aside: _Aside, conditions: Conditions) -> Contribution | None:
    """Return the evidence against a cause from lines that would support it but do not count, if there are any.

    Its weight is zero if the job itself shows a root event of the cause.
    """
    told = aside.supporting(weighed.cause, conditions)
    if not told:
        return None
    why = answer_in_words(told[0][1])
    says = {
        "en": f"A line that would support this cause is set aside: {why['en']}.",
        "zh": f"有一行本可支持该原因，但不计入：{why['zh']}。",
    }
    evidence = Evidence(SET_ASIDE_ID, "weak", says, weighed.cause.where)
    own = any(event.role == "root" for item in weighed.for_items for event in item.events)
    return Contribution(evidence, [event for event, _ in told][:4], 0.0 if own else -evidence.log_odds, against=True)


def _precedence(case: Case, item: Contribution) -> tuple[bool, float, int, str]:
    """Return the sort key of an item: side, weight, first line and name, so that the order in rule files is irrelevant."""
    first = min((case.position(event) for event in item.events), default=len(case.events))
    return item.against, -item.evidence.log_odds, first, item.evidence.id


def supporting(item: Evidence, case: Case, conditions: Conditions) -> list[Event] | None:
    """Return the events that make an item of evidence hold, or None if it does not hold."""
    events: list[Event] = []
    if item.signatures:
        events = case.of(*item.signatures)
        if item.where is not None:
            where = item.where
            events = [event for event in events if conditions.selects(where, event)]
        if not events:
            return None
    if item.when is not None:
        holds, behind = conditions.holds(item.when)
        if not holds:
            return None
        events = events or behind
    return events[:12]


def _sum(weighed: Weighed) -> float:
    positive = sorted((c.applied for c in weighed.contributions if c.applied > 0), reverse=True)
    total = sum(
        value * (_DIMINISH[index] if index < len(_DIMINISH) else _DIMINISH[-1]) for index, value in enumerate(positive)
    )
    return total + sum(c.applied for c in weighed.contributions if c.applied < 0)


def _explains(cause: Cause, event: Event) -> bool:
    return any(stands_for(pattern, event.signature, event.kind) for pattern in cause.explains)


def _explain_away(case: Case, everything: list[Weighed]) -> None:
    """Discount evidence that the leading cause with a root event explains."""
    roots = [w for w in everything if w.score >= EXPLAINER_SCORE and w.root_position(case) is not None]
    if not roots:
        return
    leader = max(roots, key=lambda w: (w.score, -(w.root_position(case) or 0)))
    for other in everything:
        if other is leader:
            continue
        for item in other.for_items:
            cascade = [e for e in item.events if e.role != "root"]
            rests_on_root = len(cascade) < len(item.events)
            if item.evidence.unless_explained or (
                item.events and not rests_on_root and all(_explains(leader.cause, e) for e in cascade)
            ):
                item.explained_by = leader.cause.id
                item.applied *= EXPLAINED_SHARE
        other.score = _sum(other)


def _specific_first(everything: list[Weighed]) -> None:
    """Discount evidence for the catch-all cause if strong evidence for another cause rests on the same lines."""
    read = {
        (event.source, event.line): weighed.cause.id
        for weighed in everything
        if not weighed.cause.catch_all
        for item in weighed.for_items
        if item.evidence.weight in ("decisive", "strong")
        for event in item.events
    }
    for weighed in everything:
        if not weighed.cause.catch_all:
            continue
        for item in weighed.for_items:
            causes = {read.get((event.source, event.line)) for event in item.events}
            if causes and None not in causes and item.explained_by is None:
                item.explained_by = next(iter(causes))
                item.applied *= EXPLAINED_SHARE
        weighed.score = _sum(weighed)


def _first_fault(case: Case, everything: list[Weighed]) -> None:
    """Add a bonus to the cause with the earliest root event."""
    if not case.order_known:
        return
    placed = [(w.root_position(case), w) for w in everything if w.score > 1.0]
    known = [(position, w) for position, w in placed if position is not None]
    if len({position for position, _ in known}) < 2:
        return
    first = min(position for position, _ in known)
    for position, weighed in known:
        if position == first:
            weighed.score += FIRST_FAULT


def _share_of_vote(everything: Sequence[Weighed]) -> float:
    """Return the share of the vote that counts. It shrinks as the lead of the rules' first cause grows."""
    first, second = sorted((UNKNOWN_SCORE, UNKNOWN_SCORE, *(w.score for w in everything)), reverse=True)[:2]
    best = max((w.score for w in everything), default=0.0)
    lead = first - second if best > UNKNOWN_SCORE else 0.0
    return VOTE_SHARE + (VOTE_SHARE_SURE - VOTE_SHARE) * min(1.0, lead / SURE_LEAD)


def _add_votes(case: Case, everything: list[Weighed], votes: Sequence[Vote]) -> None:
    """Add each of the classifier's votes as an item of evidence. A cause may rest on its vote alone."""
    share = _share_of_vote(everything)
    by_id = {weighed.cause.id: weighed for weighed in everything}
    conditions = Conditions(case)
    for vote in votes:
        cause = case.rules.causes.get(vote.cause)
        if cause is None or vote.log_odds < 0 or _is_ruled_out(cause, conditions):
            continue
        weighed = by_id.get(vote.cause)
        if weighed is None:
            weighed = Weighed(cause)
            everything.append(weighed)
        applied = share * vote.log_odds
        if weighed.score <= 0 or not weighed.for_items:
            applied = min(applied, max(0.0, VOTE_ALONE - weighed.score))
        weighed.contributions.append(Contribution(_evidence_of(vote, applied), list(vote.events), applied))
        weighed.score += applied
    _doubt(everything, {vote.cause: vote.log_odds for vote in votes if vote.log_odds < 0})


def _doubt(everything: Sequence[Weighed], against: Mapping[str, float]) -> None:
    """Lower the score of the leading cause if its known incidents hardly ever have such lines.

    Its rivals are not doubted: less of them would make it more certain. Doubt lowers the confidence and does not undo
    what rules show, so the cause still leads.
    """
    if not everything:
        return
    leader, *rivals = sorted(everything, key=lambda weighed: (-weighed.score, weighed.cause.id))
    if leader.cause.id not in against:
        return
    least = max([UNKNOWN_SCORE, *(rival.score for rival in rivals)]) + LEAST_LEAD
    applied = min(0.0, max(VOTE_AGAINST * against[leader.cause.id], least - leader.score))
    leader.contributions.append(Contribution(_evidence_against(applied), [], applied, against=True))
    leader.score += applied


def _evidence_of(vote: Vote, applied: float) -> Evidence:
    return Evidence(
        id=VOTE_ID,
        weight=_weight(applied),
        says={
            "en": f"The lines that tell most have words of known incidents of this cause: {vote.incidents} of the "
            f"{vote.learnt_from} learnt from.",
            "zh": f"最能说明问题的行与该原因的已知事故用词相似：学习过的 {vote.learnt_from} 起事故中有 {vote.incidents} 起。",
        },
        where_defined="the classifier's model",
    )


def _evidence_against(applied: float) -> Evidence:
    return Evidence(
        id=VOTE_ID,
        weight=_weight(-applied),
        says={
            "en": "The lines that tell most are unlike those of known incidents of this cause.",
            "zh": "最能说明问题的行与该原因的已知事故不相似。",
        },
        where_defined="the classifier's model",
    )


def _weight(applied: float) -> str:
    return "strong" if applied >= 2.4 else ("moderate" if applied >= 1.15 else "weak")


def _cap(weighed: Weighed) -> float:
    """Return the highest confidence that the evidence for a cause allows, whatever its score."""
    items = [item for item in weighed.rule_items if item.explained_by is None and item.evidence.log_odds >= TELLING]
    if not items:
        return 1.0
    if all(_is_silence(item.evidence) for item in items):
        return SILENCE_CAP
    alone = len(items) == 1 and items[0].evidence.weight == "strong"
    return ALONE_CAP if alone else 1.0


def _is_silence(evidence: Evidence) -> bool:
    """Tell whether an item infers something from missing output."""
    return evidence.when is not None and any(name in SILENT_FACTS for name in evidence.when.literals("fact"))


def rank_causes(case: Case, votes: Sequence[Vote] = ()) -> tuple[list[Weighed], float]:
    """Return the causes with their confidences, best first, and the confidence of ``unknown``."""
    everything = gather(case)
    for weighed in everything:
        weighed.score = _sum(weighed)
    _explain_away(case, everything)
    _specific_first(everything)
    _first_fault(case, everything)
    _add_votes(case, everything, votes)
    everything.sort(key=lambda w: (-w.score, w.cause.id))
    shares, unknown = confidences([w.score for w in everything])
    for weighed, share in zip(everything, shares, strict=True):
        weighed.confidence = min(share, _cap(weighed))
        unknown += share - weighed.confidence
    return everything, unknown


def confidences(scores: Sequence[float]) -> tuple[list[float], float]:
    """Return the confidences of scores and of ``unknown`` by a softmax with the fitted temperature."""
    known = [UNKNOWN_SCORE, *scores]
    top = max(known)
    powers = [exp((score - top) / TEMPERATURE) for score in known]
    total = sum(powers)
    return [power / total for power in powers[1:]], powers[0] / total
