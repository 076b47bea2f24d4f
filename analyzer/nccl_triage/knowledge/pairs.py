"""Texts in both languages as two keys of plain data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.knowledge.model import Text

Data = dict[str, Any]


def pair(name: str, text: Text | None) -> Data:
    """Return a text under its two keys."""
    return {name: text["en"] if text else None, f"{name}_zh": text["zh"] if text else None}


def titles(ids: Iterable[str], rules: RuleSet) -> list[Data]:
    """Return causes as id and title; ids that do not exist are left out."""
    return [{"id": name, **pair("title", rules.causes[name].title)} for name in ids if name in rules.causes]
