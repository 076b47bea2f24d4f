"""Add up the evidence for each cause, explain cascades away, and turn scores into confidences.

A cause's score is the sum of its evidence's log-odds, the second and later items counting less (they are rarely
independent). The leading cause with a root event explains the cascade that it lists under ``explains``: other causes'
evidence that rests on those events alone is discounted. Confidences are a softmax over all causes and ``unknown``,
with a temperature fitted on labelled cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import exp

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.engine.schema import Cause, Evidence
from nccl_triage.events import Event

#: Score of "none of the known causes": what evidence has to beat.
UNKNOWN_SCORE = 1.8
#: Softmax temperature, fitted on labelled cases (``make evaluate`` prints the calibration error).
TEMPERATURE = 0.65
#: How much the n-th strongest item of a cause counts.
_DIMINISH = (1.0, 0.6, 0.4, 0.25, 0.15)
#: What is left of evidence that another cause's cascade explains.
EXPLAINED_SHARE = 0.15
#: A cause needs this much, with a root event, before it explains others away.
EXPLAINER_SCORE = 3.0
#: Bonus of the cause whose root event comes first when several have one.
FIRST_FAULT = 1.0


@dataclass(slots=True)
class Contribution:
    """One item of evidence that holds, and what it adds to the score."""

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
        """The contributions that speak for the cause, strongest first."""
        return [item for item in self.contributions if not item.against]

    def root_position(self, case: Case) -> int | None:
        """Return the place of the cause's earliest event of role root."""
        positions = [case.position(e) for item in self.for_items for e in item.events if e.role == "root"]
        return min(positions) if positions else None


def gather(case: Case) -> list[Weighed]:
    """Evaluate the evidence of every cause; causes without any evidence for them are left out."""
    conditions = Conditions(case)
    found: list[Weighed] = []
    for cause in case.rules.causes.values():
        weighed = Weighed(cause)
        for against, items in ((False, cause.evidence), (True, cause.against)):
            for item in items:
                events = _supporting(item, case, conditions)
                if events is not None:
                    sign = -1 if against else 1
                    weighed.contributions.append(Contribution(item, events, sign * item.log_odds, against))
        if weighed.for_items:
            found.append(weighed)
    return found


def _supporting(item: Evidence, case: Case, conditions: Conditions) -> list[Event] | None:
    """Return the events that make an item of evidence hold, or None when it does not."""
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
    return any(fnmatchcase(event.signature, pattern) for pattern in cause.explains)


def _explain_away(case: Case, everything: list[Weighed]) -> None:
    """Discount evidence that the leading root cause accounts for."""
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


def _first_fault(case: Case, everything: list[Weighed]) -> None:
    """Prefer the cause whose root event stands first."""
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


def rank_causes(case: Case) -> tuple[list[Weighed], float]:
    """Return the causes, best first, with confidences, and the confidence of ``unknown``."""
    everything = gather(case)
    for weighed in everything:
        weighed.score = _sum(weighed)
    _explain_away(case, everything)
    _first_fault(case, everything)
    everything.sort(key=lambda w: (-w.score, w.cause.id))
    scores = [UNKNOWN_SCORE, *(w.score for w in everything)]
    top = max(scores)
    powers = [exp((score - top) / TEMPERATURE) for score in scores]
    total = sum(powers)
    for weighed, power in zip(everything, powers[1:], strict=True):
        weighed.confidence = power / total
    return everything, powers[0] / total
