"""Remarks on the environment of a job, as the report document holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Remarks of one document, and variables that are looked at for them.
MAX_REMARKS, MAX_VARIABLES = 30, 400


def _values(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def remarks(environment: Mapping[str, Any], versions: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the remarks on a job's variables, sorted by name; warnings first when there are too many.

    ``environment`` maps a name to its value, or to the list of the values of different hosts.
    """
    if not environment:
        return []  # nothing of the catalogue is read for most logs
    from nccl_triage.knowledge.judge import judge

    flat = {name: _values(value)[0] for name, value in environment.items() if _values(value)}
    found = [
        remark
        for name, value in sorted(environment.items())[:MAX_VARIABLES]
        for one in sorted(set(_values(value)))
        for remark in judge(name, one, versions, flat)
        # RCCL reads names under NCCL_ that NCCL does not.
        if not (remark.kind == "unknown" and "rccl" in versions)
    ]
    kept = sorted(found, key=lambda remark: remark.level != "warn")[:MAX_REMARKS]
    return [
        {
            "name": remark.name,
            "value": remark.value[:200],
            "level": remark.level,
            "kind": remark.kind,
            "says": remark.says["en"],
            "says_zh": remark.says["zh"],
        }
        for remark in sorted(kept, key=lambda remark: (remark.name, remark.value, remark.level != "warn", remark.kind))
    ]
