"""The findings on a job: the verdict, its candidate causes, and how sure each of them is."""

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
    """A candidate cause, with its status and its culprits."""

    weighed: Weighed
    status: Status
    culprits: list[Culprit]

    @property
    def id(self) -> str:
        """The cause's id."""
        return self.weighed.cause.id

    @property
    def confidence(self) -> float:
        """The calibrated probability that this cause is the root cause."""
        return self.weighed.confidence


@dataclass(slots=True)
class Findings:
    """What a diagnosis found out about a job."""

    verdict: Verdict
    candidates: list[Candidate]
    unknown_confidence: float
    case: Case
    #: The file of the model, unless it is the shipped one.
    model: str = ""

    @property
    def cause(self) -> str | None:
        """The id of the first candidate if the job was diagnosed, else None."""
        return self.candidates[0].id if self.candidates and self.verdict == "diagnosed" else None

    @property
    def confidence(self) -> float:
        """The confidence of the first candidate, or 0 without any."""
        return self.candidates[0].confidence if self.candidates else 0.0
