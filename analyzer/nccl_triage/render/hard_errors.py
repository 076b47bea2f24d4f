"""The lines that tell most of a run, for a reader who must judge for himself: unless the verdict is nearly certain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage.render.words import Document

Item = Mapping[str, Any]

#: From this confidence on, a verdict is nearly certain.
CERTAIN = 0.95
#: Most lines that are shown.
LINES = 3


def hard_errors(document: Document) -> list[Item]:
    """Return the most telling lines of a document whose verdict is not nearly certain."""
    best: Item = next(iter(document.get("diagnoses") or []), {})
    sure = document.get("verdict") == "diagnosed" and float(best.get("confidence") or 0) >= CERTAIN
    return [] if sure else list(document.get("telling_lines") or [])[:LINES]
