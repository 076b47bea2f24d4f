"""A suspected hang as plain data: the key ``follow.hang`` of a report document."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from nccl_triage.diagnosis.silence import Last, Suspicion

#: Maximum number of processes listed, and of characters kept of the last line of each.
LISTED, TEXT = 16, 300


def stamp(seconds: float) -> str:
    """Return a time of the local clock as ISO 8601 with its zone."""
    return datetime.datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def describe(found: Suspicion) -> dict[str, Any]:
    """Return a suspicion as it stands in a report document."""
    return {
        "since": stamp(found.since),
        "seconds": round(found.seconds, 1),
        "usual_step_seconds": round(found.usual, 3),
        "limit_seconds": round(found.limit, 1),
        "last_step": None if found.step is None else int(found.step),
        "silent_ranks": _ranks(last for last in found.lasts if last.silent),
        "printing_ranks": _ranks(last for last in found.lasts if not last.silent),
        "behind_ranks": _ranks(last for last in found.lasts if last.behind),
        "announced": None if found.pause is None else found.pause.text[:TEXT],
        "last_lines": [_line(last) for last in found.lasts[:LISTED]],
    }


def _ranks(lasts: Iterable[Last]) -> list[int]:
    return sorted({last.rank for last in lasts if last.rank is not None})


def _line(last: Last) -> dict[str, Any]:
    event = last.event
    return {
        "rank": last.rank,
        "host": event.context.host,
        "pid": event.context.pid,
        "silent": last.silent,
        "seconds": round(last.seconds, 1),
        "step": None if last.step is None else int(last.step),
        "path": event.source,
        "line": event.line,
        "text": event.text[:TEXT],
    }
