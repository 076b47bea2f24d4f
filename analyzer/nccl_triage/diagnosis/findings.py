"""The findings on a job: the verdict, its candidate causes, and how sure each of them is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit import Culprit
from nccl_triage.diagnosis.weigh import Weighed
from nccl_triage.story.decisions import Decision

Verdict = Literal["diagnosed", "unknown", "healthy"]
Status = Literal["established", "supported", "possible"]


@dataclass(slots=True)
class Candidate:
    """A candidate cause, with its status and its culprits."""

    weighed: Weighed
    #: Which status it has, and why.
    ranked: Decision
    culprits: list[Culprit]
    #: The method or fact that named the culprits.
    found_by: str | None = None

    @property
    def id(self) -> str:
        """The cause's id."""
        return self.weighed.cause.id

    @property
    def status(self) -> Status:
        """How sure it is in words."""
        status: Status = self.ranked.answer  # type: ignore[assignment]
        return status

    @property
    def confidence(self) -> float:
        """The calibrated probability that this cause is the root cause."""
        return self.weighed.confidence


@dataclass(slots=True)
class Findings:
    """What a diagnosis found out about a job."""

    #: The verdict, and why.
    decision: Decision
    candidates: list[Candidate]
    unknown_confidence: float
    case: Case
    #: The file of the model, unless it is the shipped one.
    model: str = ""

    @property
    def verdict(self) -> Verdict:
        """Whether a cause is named, none can be named, or nothing failed."""
        verdict: Verdict = self.decision.answer  # type: ignore[assignment]
        return verdict

    @property
    def cause(self) -> str | None:
        """The id of the first candidate if the job was diagnosed, else None."""
        return self.candidates[0].id if self.candidates and self.verdict == "diagnosed" else None

    @property
    def confidence(self) -> float:
        """The confidence of the first candidate, or 0 without any."""
        return self.candidates[0].confidence if self.candidates else 0.0
