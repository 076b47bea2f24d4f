"""The lines of the run that tell most, known to a rule or not: a learned ranking by form and place."""

from __future__ import annotations

from typing import Any

from nccl_triage.diagnosis.findings import Findings
from nccl_triage.observations.event import Event

#: Most lines that are told.
MAX_LINES = 5
#: Characters kept of a line.
_TEXT = 300


def events(diagnosis: Findings) -> list[Event]:
    """Return the lines that tell most of a run that did not end well, the most telling first.

    Without a model of them these are the first failures.
    """
    if diagnosis.verdict == "healthy":
        return []
    return diagnosis.case.told_lines(MAX_LINES)


def describe(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return them with where they stand, who printed them, and how likely a reader would point at each."""
    case = diagnosis.case
    if diagnosis.verdict == "healthy":
        return []
    return [
        {
            "path": told.event.source,
            "line": told.event.line,
            "text": told.event.text[:_TEXT],
            "rank": case.rank(told.event),
            "host": case.host(told.event),
            "score": round(told.score, 3),
        }
        for told in case.most_telling[:MAX_LINES]
    ]
