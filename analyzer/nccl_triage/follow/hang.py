"""Suspects a hang of a job that printed no error: no step for much longer than steps take and pauses have lasted.

Start-up, checkpoints and evaluation are slow on purpose, so this is never more than a suspicion. It needs some steps to
compare with, waits longer after a line that announces such work, and learns from every pause that ended well.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from nccl_triage.follow.heartbeats import Heartbeats, ProcessHeartbeat
from nccl_triage.observations.event import Event

#: Steps of one process before a pause means anything.
MIN_STEPS = 5
#: Seconds without a step that are never suspicious, usually and after a line that announces a long pause.
SHORTEST, ANNOUNCED = 60.0, 600.0
#: How many times the longest earlier pause, and the usual limit after such a line, a pause must last.
PAUSE_FACTOR, ANNOUNCED_FACTOR = 2.0, 5.0
#: A process counts as silent after this share of the limit without output.
_QUIET = 0.5


@dataclass(frozen=True, slots=True)
class LastLine:
    """The last line of a process; ``rank`` is None where no line names one."""

    rank: int | None
    event: Event
    #: Seconds since it arrived.
    seconds: float
    silent: bool
    step: float | None
    #: Whether its last step lies before that of others.
    behind: bool


@dataclass(frozen=True, slots=True)
class HangSuspicion:
    """A suspected hang: since when, compared with what, and the last lines of the processes."""

    since: float
    seconds: float
    usual: float
    limit: float
    step: float | None
    pause: Event | None
    lasts: tuple[LastLine, ...]


def limit(heartbeats: Heartbeats, factor: float) -> float | None:
    """Return the seconds without a step after which a hang is suspected, None while too little is known."""
    usual = heartbeats.usual
    if usual is None or heartbeats.steps < MIN_STEPS or heartbeats.done:
        return None
    found = max(SHORTEST, factor * usual, PAUSE_FACTOR * heartbeats.longest)
    return max(ANNOUNCED, ANNOUNCED_FACTOR * found) if heartbeats.pause is not None else found


def suspect(
    heartbeats: Heartbeats, now: float, factor: float, rank_of: Callable[[Event], int | None]
) -> HangSuspicion | None:
    """Return a suspected hang or None; a pause of ``factor`` usual steps is too long."""
    allowed, since, usual = limit(heartbeats, factor), heartbeats.advanced, heartbeats.usual
    if allowed is None or since is None or usual is None or now - since < allowed:
        return None
    merged: dict[Hashable, tuple[int | None, ProcessHeartbeat]] = {}
    for key, process in heartbeats.processes.items():
        rank = rank_of(process.last)
        _merge(merged, key if rank is None else rank, rank, process)
    if any(rank is not None for rank, _ in merged.values()):
        # Launchers and daemons are no ranks and have no steps to wait for.
        merged = {key: found for key, found in merged.items() if found[0] is not None}
    steps = {key: step for key, (_, process) in merged.items() if (step := _number(process.step)) is not None}
    top = max(steps.values(), default=None)
    counted = len({_kind(process) for key, (_, process) in merged.items() if key in steps}) == 1
    lasts = [
        LastLine(
            rank,
            process.last,
            max(0.0, now - process.heard),
            now - process.heard > allowed * _QUIET,
            steps.get(key),
            counted and top is not None and key in steps and steps[key] < top,
        )
        for key, (rank, process) in merged.items()
    ]
    lasts.sort(key=lambda last: (not last.behind, not last.silent, -last.seconds, last.rank or 0, last.event.source))
    return HangSuspicion(since, now - since, usual, allowed, top, heartbeats.pause, tuple(lasts))


def _merge(
    into: dict[Hashable, tuple[int | None, ProcessHeartbeat]],
    key: Hashable,
    rank: int | None,
    process: ProcessHeartbeat,
) -> None:
    """Merge the heartbeats of one rank whose lines name its process only sometimes."""
    known = into.get(key)
    if known is None:
        into[key] = (rank, process)
        return
    first = known[1]
    latest, stepped = max(first, process, key=lambda v: v.heard), max(first, process, key=lambda v: v.advanced)
    into[key] = (rank, ProcessHeartbeat(latest.last, latest.heard, 0, stepped.step, stepped.advanced))


def _number(event: Event | None) -> float | None:
    return None if event is None else event.number("step")


def _kind(process: ProcessHeartbeat) -> str:
    return process.step.signature if process.step is not None else ""


#: The most processes listed, and the most characters kept of the last line of each.
LISTED, TEXT = 16, 300


def stamp(seconds: float) -> str:
    """Return a time of our own clock as ISO 8601 with its time zone."""
    return datetime.datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def describe(found: HangSuspicion) -> dict[str, Any]:
    """Return a suspected hang as plain data: the key ``follow.hang`` of a report document."""
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


def _ranks(lasts: Iterable[LastLine]) -> list[int]:
    return sorted({last.rank for last in lasts if last.rank is not None})


def _line(last: LastLine) -> dict[str, Any]:
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
