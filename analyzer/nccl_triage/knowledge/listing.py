"""Lists of what can be explained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nccl_triage.engine.schema import FAMILIES, RuleSet
from nccl_triage.knowledge import catalogue
from nccl_triage.knowledge.lookup import Found
from nccl_triage.knowledge.model import Text
from nccl_triage.knowledge.variables import shipped

Row = tuple[str, Text]
_TOPICS: dict[str, Text] = {
    "symptoms": {"en": "what you see, what it means, what to look at first", "zh": "看到什么、意味着什么、先查什么"},
    "timeouts": {"en": "who sets a time-out, and how", "zh": "超时由谁设定、如何设置"},
    "codes": {"en": "the tables of numbers", "zh": "编号表"},
}


def _families(rules: RuleSet) -> Iterable[Row]:
    for family in FAMILIES:
        members = ", ".join(sorted(cause.id for cause in rules.causes.values() if cause.family == family))
        yield family, {"en": members, "zh": members}


_ROWS: dict[str, Callable[[RuleSet], Iterable[Row]]] = {
    "families": _families,
    "causes": lambda rules: ((item.id, item.title) for item in rules.causes.values()),
    "symptoms": lambda rules: ((item.id, item.means) for item in catalogue.symptoms().values()),
    "advice": lambda rules: ((item.id, item.claim) for item in catalogue.advice().values()),
    "variables": lambda rules: ((item.id, item.meaning) for item in shipped().all()),
    "codes": lambda rules: ((item.id, item.title) for item in catalogue.tables().values()),
    # The meanings of signatures exist in English alone.
    "signatures": lambda rules: ((item.id, {"en": item.meaning}) for item in rules.signatures.values()),
    "topics": lambda rules: _TOPICS.items(),
}


def _row(name: str, text: Text) -> dict[str, str]:
    row = {"id": name, "text": text["en"].strip()}
    return {**row, "text_zh": text["zh"].strip()} if "zh" in text else row


def listing(kind: str, rules: RuleSet) -> dict[str, Any]:
    """Return everything of a kind of ``lookup.KINDS``."""
    return {"kind": "listing", "of": kind, "rows": [_row(name, text) for name, text in _ROWS[kind](rules)]}


def _text(found: Found) -> Text:
    item = found.item
    texts = {"cause": "title", "advice": "claim", "symptom": "means", "variable": "meaning", "code": "meaning"}
    if found.kind == "signature":
        return {"en": item.meaning}
    text: Text = getattr(item, texts[found.kind])
    return text


def hits(found: Iterable[Found]) -> dict[str, Any]:
    """Return what a search has found as a list; every row's id can be explained."""
    rows = [
        _row(f"{item.item.table}:{item.item.number}" if item.kind == "code" else item.item.id, _text(item))
        for item in found
    ]
    return {"kind": "listing", "of": "hits", "rows": rows}
