"""Rows of the variables: what the table of known variables says of each that is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nccl_triage.doctor import network_rows
from nccl_triage.knowledge.judge import cut, judge_variable

#: Remarks that need no reader's time: a default that is written out.
_QUIET = frozenset({"default"})


def rows(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every variable with what is unusual about it; ``level`` is none, note or warn."""
    found = network_rows.variables(facts)
    known = _versions(facts)
    for name, value in sorted(found.items()):
        remarks = [remark for remark in judge_variable(name, value, known, found) if remark.kind not in _QUIET]
        levels = [remark.level for remark in remarks]
        yield {
            "subject": name,
            "value": cut(value),
            "level": "warn" if "warn" in levels else "note" if levels else "none",
            "kinds": [remark.kind for remark in remarks],
            "remark": {
                "en": " ".join(remark.says["en"].strip() for remark in remarks),
                "zh": "".join(remark.says["zh"].strip() for remark in remarks),
            },
        }


def _versions(facts: Mapping[str, Any]) -> dict[str, str]:
    software = facts.get("software")
    told = software if isinstance(software, dict) else {}
    return {name: str(told[name]) for name in ("nccl", "torch", "cuda") if told.get(name)}
