"""Which rules that are not shipped, or which model, had a part in a diagnosis: the reader must know whose words these are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from nccl_triage.diagnosis.model import Findings
from nccl_triage.diagnosis.weigh import VOTE_ID

#: Files named at most, and rules of each; further ones are counted.
_FILES, _RULES = 50, 50


def describe(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return files with the ids of their rules that took part; nothing where the shipped ones spoke alone."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for path, rule in _rules(diagnosis):
        found[path][rule] = None
    files = [{"path": path, "ids": list(ids)[:_RULES]} for path, ids in sorted(found.items())]
    return files[:_FILES]


def _rules(diagnosis: Findings) -> Iterator[tuple[str, str]]:
    """Yield file and id of every such rule, maybe more than once."""
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
