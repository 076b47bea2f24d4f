"""Diagnose labelled cases, and the two naive baselines on the same cases."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal

from nccl_triage.api import diagnose
from nccl_triage.classifier.model import Model
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.document import restart, telling_lines
from nccl_triage.document.advice import CauseAdvice
from nccl_triage.document.evidence import ordered_evidence
from nccl_triage.engine.match import expand
from nccl_triage.engine.schema import WEIGHTS, RuleSet
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.evaluation.score import CaseOutcome
from nccl_triage.render import to_do

#: The naive baselines: a user of grep who looks at the first error line, or at the last.
BASELINES = ("first error line", "last error line")


def outcome_of(case: LabelledCase, diagnosis: Findings, seconds: float = 0.0) -> CaseOutcome:
    """Return what a diagnosis said about a case."""
    events = []
    if diagnosis.candidates:
        events = [event for _, event in ordered_evidence(diagnosis.candidates[0].weighed)]
    judged = case.advice is not None
    decision = restart.decide(diagnosis) if judged else None
    return CaseOutcome(
        case=case,
        verdict=diagnosis.verdict,
        causes=[candidate.id for candidate in diagnosis.candidates],
        confidence=diagnosis.confidence,
        culprits=[(c.rank, c.host) for c in (diagnosis.candidates[0].culprits if diagnosis.candidates else [])],
        lines=[event.line for event in events],
        files=[event.source for event in events],
        told=[(event.source, event.line) for event in telling_lines.events(diagnosis)],
        outcome=diagnosis.case.story.outcome.state,
        repairs=_repairs(diagnosis) if judged else [],
        restart=decision.decision.answer if decision is not None else None,
        seconds=seconds,
    )


def _repairs(diagnosis: Findings) -> list[str]:
    """Return the ids of the fixes that are told first."""
    if not diagnosis.candidates:
        return []
    best = diagnosis.candidates[0]
    advice = CauseAdvice(diagnosis.case, best)
    told = {"status": best.status, "fixes": advice.fixes(), "next_check": advice.next_check()}
    return to_do.repairs(diagnosis.verdict, told)


def baselines_of(case: LabelledCase, diagnosis: Findings, causes: Mapping[str, str]) -> dict[str, CaseOutcome]:
    """Return what the first and the last error line of a log say; ``causes`` is ``cause_of_signature``."""
    bad = [event for event in diagnosis.case.events if event.is_failure]
    found: dict[str, CaseOutcome] = {}
    for name, event in zip(BASELINES, (bad[:1], bad[-1:]), strict=True):
        cause = causes.get(event[0].signature) if event else None
        verdict = "diagnosed" if cause else ("unknown" if event else "healthy")
        found[name] = CaseOutcome(
            case=case,
            verdict=verdict,
            causes=[cause] if cause else [],
            confidence=1.0 if cause else 0.0,
            culprits=[(diagnosis.case.rank(event[0]), diagnosis.case.host(event[0]))] if event else [],
            lines=[event[0].line] if event else [],
            files=[event[0].source] if event else [],
        )
    return found


def run(
    cases: Sequence[LabelledCase], rules: RuleSet, model: Model | Literal["shipped"] | None = "shipped"
) -> tuple[list[CaseOutcome], dict[str, list[CaseOutcome]]]:
    """Return the outcomes of nccl-triage and of the baselines "first error line" and "last error line"."""
    outcomes: list[CaseOutcome] = []
    baselines: dict[str, list[CaseOutcome]] = {name: [] for name in BASELINES}
    causes = cause_of_signature(rules)
    for case in cases:
        started = time.monotonic()
        diagnosis = diagnose(case.log, rules=rules, model=model)
        outcomes.append(outcome_of(case, diagnosis, time.monotonic() - started))
        for name, outcome in baselines_of(case, diagnosis, causes).items():
            baselines[name].append(outcome)
    return outcomes, baselines


def cause_of_signature(rules: RuleSet) -> dict[str, str]:
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
