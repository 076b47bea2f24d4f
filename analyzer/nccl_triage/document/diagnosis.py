"""A diagnosis: the findings on a job and the report document that is made of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from nccl_triage.classifier.model import Model
from nccl_triage.diagnosis import verdict
from nccl_triage.diagnosis.model import Findings
from nccl_triage.document import notes
from nccl_triage.document.build import build
from nccl_triage.engine.schema import RuleSet
from nccl_triage.events import Observations
from nccl_triage.redaction.secrets import mask_secrets


@dataclass(slots=True)
class Diagnosis(Findings):
    """The findings with their report document."""

    #: Lines of the logs with the lines around them, as the reader of the logs returns them.
    excerpts: list[dict[str, Any]] = field(default_factory=list)
    #: How long reading and diagnosing took.
    seconds: float | None = None

    @property
    def notes(self) -> list[dict[str, str]]:
        """What a reader must know of the input beside the verdict, in both languages."""
        return notes.notes(self.case, self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return the report document: the JSON contract (schema in reports/schema), with every secret masked."""
        return mask_secrets(build(self, self.excerpts, self.seconds))


def diagnose_observations(observations: Observations, rules: RuleSet, model: Model | None = None) -> Diagnosis:
    """Return the diagnosis of a job from everything observed; without a model the rules decide alone."""
    found = verdict.decide(observations, rules, model)
    return Diagnosis(**{item.name: getattr(found, item.name) for item in fields(found)})
