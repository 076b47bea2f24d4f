"""A diagnosis and its report document: the findings as plain data, the JSON contract that every renderer reads.

Texts for people come in pairs, ``X`` in English and ``X_zh`` in Chinese; ids, keys and log lines are never translated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from nccl_triage._version import __version__
from nccl_triage.classifier.model import Model
from nccl_triage.diagnosis import verdict
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.document import (
    causes,
    evidence,
    headline,
    incident,
    known_issues,
    network,
    notes,
    other_runs,
    restart,
    series,
    telling_lines,
    trace,
)
from nccl_triage.document.evidence import pair
from nccl_triage.document.job import collective, job
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations
from nccl_triage.redaction.secrets import mask_secrets

SCHEMA_VERSION = 1


def build(
    diagnosis: Findings,
    excerpts: list[dict[str, Any]],
    seconds: float | None,
    similar: bool = True,
    traced: bool = False,
) -> dict[str, Any]:
    """Return the document of a diagnosis; ``seconds`` tells how long it took.

    ``similar`` says whether threads are looked up, ``traced`` whether every decision is told.
    """
    case = diagnosis.case
    recurrence = other_runs.recurrence(diagnosis)
    compared = other_runs.comparison(diagnosis)
    partial = notes.interruption(case)
    others = causes.foreign_rules(diagnosis)
    last_good = incident.last_good_step(diagnosis)
    remarks = notes.notes(case, diagnosis.verdict)
    alike = _similar(diagnosis) if similar else []
    known = known_issues.describe(diagnosis)
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "nccl-triage", "version": __version__, "rules": case.rules.digest[:12]},
        "verdict": diagnosis.verdict,
        **pair("headline", notes.marked(case, headline.headline(diagnosis))),
        **({"foreign_rules": others} if others else {}),
        "outcome": headline.outcome(case),
        "restart": restart.describe(diagnosis),
        "runs": headline.runs(case),
        "decisions": trace.summary(diagnosis),
        **({"trace": trace.describe(diagnosis)} if traced else {}),
        **({"interrupted": partial} if partial else {}),
        "diagnoses": [causes.describe(case, candidate) for candidate in diagnosis.candidates],
        "incident": incident.describe(diagnosis),
        "waits": incident.waits(case),
        "last_good_step": last_good,
        "collective": collective(case),
        "network": network.networks(case),
        "peers": network.peers(case),
        "series": series.describe(diagnosis, last_good),
        **({"baseline": compared} if compared is not None else {}),
        "job": job(diagnosis),
        "telling_lines": telling_lines.describe(diagnosis),
        "symptoms": evidence.symptoms(case),
        "not_seen": evidence.missing(diagnosis),
        **({"recurrence": recurrence} if recurrence else {}),
        **({"known_issues": known} if known else {}),
        **({"similar": alike} if alike else {}),
        "timeline": evidence.timeline(case),
        "excerpts": excerpts,
        "inputs": [
            {
                "path": path,
                "bytes": info.bytes,
                "lines": info.lines,
                "problems": list(info.problems),
                **({"interrupted": True} if info.stopped else {}),
            }
            for path, info in sorted(case.observations.sources.items())
        ],
        "notes": [note["en"] for note in remarks],
        "notes_zh": [note["zh"] for note in remarks],
        "timing": {"seconds": seconds} if seconds is not None else {},
    }


def _similar(diagnosis: Findings) -> list[dict[str, Any]]:
    from nccl_triage.similar import describe  # with its index of threads, which few documents need

    return describe.similar(diagnosis)


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

    def to_dict(self, similar: bool = True, traced: bool = False) -> dict[str, Any]:
        """Return the report document: the JSON contract (schema in reports/schema), with every secret masked.

        ``similar`` says whether public threads that look alike are looked up, which takes some milliseconds; ``traced``
        whether every decision behind the diagnosis is told under ``trace``.
        """
        return mask_secrets(build(self, self.excerpts, self.seconds, similar, traced))


def diagnose_observations(observations: Observations, rules: RuleSet, model: Model | None = None) -> Diagnosis:
    """Return the diagnosis of a job from everything observed; without a model the rules decide alone."""
    found = verdict.decide(observations, rules, model)
    return Diagnosis(**{item.name: getattr(found, item.name) for item in fields(found)})
