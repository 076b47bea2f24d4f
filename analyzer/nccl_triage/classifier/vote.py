"""Votes of the classifier: evidence that is weighed beside the rules, explained, capped, and often withheld.

The model abstains when it is not sure of anything, and when nothing failed. A vote
only ever speaks for a cause: that a log does not resemble known incidents of a cause says little against it.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

from nccl_triage.classifier.features import Features, top_lines
from nccl_triage.classifier.model import Model
from nccl_triage.observations.event import Event

#: Labels that are verdicts, not causes.
VERDICTS = ("healthy", "unknown")
#: Below this highest probability the model abstains.
ABSTAIN_BELOW = 0.4
#: Log-odds of a vote at most, before ``weigh`` applies its share.
CAP = 4.0
#: Probability that is always granted to "none of these", so that odds stay finite.
FLOOR = 0.02


class Vote(NamedTuple):
    """What the model says for one cause."""

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
    probabilities = model.probabilities(features.names)
    if max(probabilities.values()) < ABSTAIN_BELOW:
        return Ballot(abstained="the log resembles no known kind of incident clearly")
    base = log(probabilities.get("unknown", 0.0) + FLOOR)
    learnt_from = sum(model.incidents(label) for label in model.labels)
    votes = []
    for label, probability in probabilities.items():
        log_odds = min(CAP, log(probability + 1e-9) - base)
        if label in VERDICTS or log_odds <= 0:
            continue
        reasons = model.reasons(features.names, label)
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
