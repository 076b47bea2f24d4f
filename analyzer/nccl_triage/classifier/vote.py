"""Votes of the classifier by the words of the lines that tell most: evidence beside the rules, explained and capped.

A vote speaks for a cause whose known incidents have such lines, and against one whose incidents hardly ever do. The
model abstains when nothing failed, and when it knows no word of those lines.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

from nccl_triage.classifier.features import Features, top_lines
from nccl_triage.classifier.model import Model
from nccl_triage.observations.event import Event

#: Labels that are verdicts, not causes.
VERDICTS = ("healthy", "unknown")
#: Below this highest probability no vote speaks for a cause: the lines resemble those of several.
SPEAKS_FROM = 0.4
#: Words of the lines that the model must know at least.
LEAST_WORDS = 2
#: Log-odds of a vote at most, before ``weigh`` applies its share, and of one against a cause.
CAP, AGAINST_CAP = 4.0, -3.5
#: Below this probability a vote is one against a cause; and what is added to each, so that odds stay finite.
UNLIKE, LEAST = 0.05, 0.002
#: Probability that is always granted to "none of these", so that odds stay finite.
FLOOR = 0.02


class Vote(NamedTuple):
    """What the model says for one cause, or against it (log-odds below zero)."""

    cause: str
    log_odds: float
    probability: float
    incidents: int
    learnt_from: int
    reasons: tuple[str, ...]
    events: tuple[Event, ...]


class Ballot(NamedTuple):
    """The votes of a model on one case; none when it abstained."""

    votes: tuple[Vote, ...] = ()
    abstained: str | None = None


def cast(model: Model, features: Features, failed: bool) -> Ballot:
    """Return the votes on a case; ``failed`` tells whether the run came to a bad end."""
    if not failed:
        return Ballot(abstained="nothing failed")
    if sum(name in model.idf for name in features.names) < LEAST_WORDS:
        return Ballot(abstained="no word of the lines that tell most is known")
    probabilities = model.probabilities(features.names)
    speaks = max(probabilities.values()) >= SPEAKS_FROM
    base = log(probabilities.get("unknown", 0.0) + FLOOR)
    learnt_from = sum(model.incidents(label) for label in model.labels)
    votes = []
    for label, probability in probabilities.items():
        against = probability < UNLIKE
        log_odds = min(CAP, log(probability + 1e-9) - base)
        if against:
            log_odds = max(AGAINST_CAP, log((probability + LEAST) / UNLIKE))
        if label in VERDICTS or (not against and (log_odds <= 0 or not speaks)):
            continue
        reasons = model.reasons(features.names, label) if not against else []
        votes.append(
            Vote(
                cause=label,
                log_odds=log_odds,
                probability=probability,
                incidents=model.incidents(label),
                learnt_from=learnt_from,
                reasons=tuple(reasons),
                events=tuple(top_lines(features, reasons)),
            )
        )
    votes.sort(key=lambda vote: (-vote.log_odds, vote.cause))
    return Ballot(tuple(votes))
