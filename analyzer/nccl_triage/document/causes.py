"""The causes of a verdict: culprits, evidence and advice, and which rules from elsewhere had a part in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from nccl_triage.diagnosis import placeholders
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import Culprit
from nccl_triage.diagnosis.findings import Candidate, Findings
from nccl_triage.diagnosis.weigh import VOTE_ID, Contribution
from nccl_triage.document.advice import CauseAdvice
from nccl_triage.document.evidence import PER_ITEM, evidence_line, location, optional_pair, ordered_evidence, pair


def _culprit(found: Culprit) -> dict[str, Any]:
    return {
        "rank": found.rank,
        "host": found.host,
        "address": found.address,
        "pid": found.pid,
        "gpu": found.gpu,
        **pair("why", found.why),
    }


def describe(case: Case, candidate: Candidate) -> dict[str, Any]:
    """Return a cause with its culprits, evidence, fixes, next check and experiment."""
    weighed, cause = candidate.weighed, candidate.weighed.cause
    events = [event for item in weighed.for_items for event in item.events]
    experiment = cause.experiment
    advice = CauseAdvice(case, candidate)
    return {
        "cause": cause.id,
        "family": cause.family,
        **pair("title", cause.title),
        "status": candidate.status,
        "confidence": round(candidate.confidence, 3),
        **pair("explanation", placeholders.fill_both(cause.explanation, case, events)),
        "culprits": [_culprit(found) for found in candidate.culprits],
        "evidence": [evidence_line(case, item, event) for item, event in ordered_evidence(weighed)],
        "against": [
            evidence_line(case, item, event)
            for item in weighed.contributions
            if item.against
            for event in item.events[:1]
        ],
        "fixes": advice.fixes(),
        "next_check": advice.next_check(),
        "stages": advice.stages(),
        "experiment": {
            "kind": experiment.kind,
            "scope": experiment.scope,
            "backend": experiment.backend,
            **optional_pair("control", experiment.control),
            "treatment": {name: value for item in experiment.vary for name, value in item.env.items()},
            "vary": [dict(item.env) if item.env else {item.variable: item.value} for item in experiment.vary],
            "passing": experiment.passing,
            **optional_pair("confirmed_if", experiment.confirmed_if),
            **optional_pair("refuted_if", experiment.refuted_if),
            **optional_pair("needs", experiment.needs),
            **optional_pair("why_not", experiment.why_not),
        },
        "verification": None,
        "score": round(weighed.score, 3),
        "contributions": [_contribution(case, item) for item in weighed.contributions],
    }


def _contribution(case: Case, item: Contribution) -> dict[str, Any]:
    sign = -1 if item.against else 1
    return {
        "id": item.evidence.id,
        "weight": item.evidence.weight,
        "log_odds": round(sign * item.evidence.log_odds, 3),
        "applied": round(item.applied, 3),
        **pair("says", placeholders.fill_both(item.evidence.says, case, item.events)),
        "explained_by": item.explained_by,
        "events": [location(event) for event in item.events[:PER_ITEM]],
    }


#: Maximum number of files, and of rules of each file.
_FILES, _RULES = 50, 50


def foreign_rules(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return the files of foreign rules that took part, with the ids of those rules; empty when only shipped rules did."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for path, rule in _foreign(diagnosis):
        found[path][rule] = None
    files = [{"path": path, "ids": list(ids)[:_RULES]} for path, ids in sorted(found.items())]
    return files[:_FILES]


def _foreign(diagnosis: Findings) -> Iterator[tuple[str, str]]:
    """Yield the file and id of every foreign rule that took part; a rule may come more than once."""
    case = diagnosis.case
    rules = case.rules
    votes = False
    for candidate in diagnosis.candidates:
        cause = candidate.weighed.cause
        if (path := _file(cause.where)) in rules.foreign:
            yield path, cause.id
        for item in candidate.weighed.contributions:
            votes |= item.evidence.id == VOTE_ID
            if (path := _file(item.evidence.where_defined)) in rules.foreign:
                yield path, item.evidence.id
    if rules.foreign:
        for name in case.observations.signatures():
            signature = rules.signatures.get(name)
            if signature is not None and (path := _file(signature.where)) in rules.foreign and case.of(name):
                yield path, name
    if diagnosis.model and votes:
        yield diagnosis.model, "model"


def _file(where: str) -> str:
    """Return the path of ``path:line``."""
    return where.rpartition(":")[0]
