"""Diagnose labelled cases, and the two naive baselines on the same cases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from nccl_triage.api import diagnose
from nccl_triage.classifier.model import Model
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.document.evidence import ordered_evidence
from nccl_triage.engine.match import expand
from nccl_triage.engine.schema import WEIGHTS, RuleSet
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.evaluation.score import CaseOutcome


def outcome_of(case: LabelledCase, diagnosis: Findings, seconds: float = 0.0) -> CaseOutcome:
    """Return what a diagnosis said about a case."""
    lines: list[int] = []
    if diagnosis.candidates:
        lines = [event.line for _, event in ordered_evidence(diagnosis.candidates[0].weighed)]
    return CaseOutcome(
        case=case,
        verdict=diagnosis.verdict,
        causes=[candidate.id for candidate in diagnosis.candidates],
        confidence=diagnosis.confidence,
        culprits=[(c.rank, c.host) for c in (diagnosis.candidates[0].culprits if diagnosis.candidates else [])],
        lines=lines,
        seconds=seconds,
    )


def run(
    cases: Sequence[LabelledCase], rules: RuleSet, model: Model | Literal["shipped"] | None = "shipped"
) -> tuple[list[CaseOutcome], dict[str, list[CaseOutcome]]]:
    """Return the outcomes of nccl-triage and of the baselines "first error line" and "last error line"."""
    outcomes: list[CaseOutcome] = []
    baselines: dict[str, list[CaseOutcome]] = {"first error line": [], "last error line": []}
    causes = _cause_of_signature(rules)
    for case in cases:
        started = time.monotonic()
        diagnosis = diagnose(case.log, rules=rules, model=model)
        outcomes.append(outcome_of(case, diagnosis, time.monotonic() - started))
        bad = [event for event in diagnosis.case.events if event.is_failure]
        for name, event in zip(baselines, (bad[:1], bad[-1:]), strict=True):
            cause = causes.get(event[0].signature) if event else None
            verdict = "diagnosed" if cause else ("unknown" if event else "healthy")
            rank = diagnosis.case.rank(event[0]) if event else None
            host = diagnosis.case.host(event[0]) if event else None
            baselines[name].append(
                CaseOutcome(
                    case=case,
                    verdict=verdict,
                    causes=[cause] if cause else [],
                    confidence=1.0 if cause else 0.0,
                    culprits=[(rank, host)] if event else [],
                    lines=[event[0].line] if event else [],
                )
            )
    return outcomes, baselines


def _cause_of_signature(rules: RuleSet) -> dict[str, str]:
    """Return, for each signature, the cause that it supports most: what a user of grep would conclude."""
    best: dict[str, tuple[float, str]] = {}
    for cause in rules.causes.values():
        for item in cause.evidence:
            for pattern in item.signatures:
                for name in expand(pattern, rules.kinds):
                    weight = WEIGHTS[item.weight]
                    if name not in best or weight > best[name][0]:
                        best[name] = (weight, cause.id)
    return {name: cause for name, (_, cause) in best.items()}
