"""The findings on a job: the verdict and its causes, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit import Culprit
from nccl_triage.diagnosis.weigh import Weighed

Verdict = Literal["diagnosed", "unknown", "healthy"]
Status = Literal["established", "supported", "possible"]


@dataclass(slots=True)
class Candidate:
    """A cause in the verdict, with how sure we are and whom it blames."""

    weighed: Weighed
    status: Status
    culprits: list[Culprit]

    @property
    def id(self) -> str:
        """The cause's id."""
        return self.weighed.cause.id

    @property
    def confidence(self) -> float:
        """The calibrated probability that this is the root cause."""
        return self.weighed.confidence


@dataclass(slots=True)
class Findings:
    """What happened, as far as the observations show."""

    verdict: Verdict
    candidates: list[Candidate]
    unknown_confidence: float
    case: Case
    #: The file of a model that is not shipped.
    model: str = ""

    @property
    def cause(self) -> str | None:
        """The id of the first cause, or None when there is none."""
        return self.candidates[0].id if self.candidates and self.verdict == "diagnosed" else None

    @property
    def confidence(self) -> float:
        """The confidence of the verdict's first cause (0 when there is none)."""
        return self.candidates[0].confidence if self.candidates else 0.0
