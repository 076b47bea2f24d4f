"""Whether a job that printed no error hangs: no step for much longer than steps take, and longer than it ever paused.

Start-up, checkpoints and evaluation are slow on purpose, so this is never more than a suspicion: it needs some steps to
compare with, waits longer after a line that announces such work, and learns from every pause that ended well.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from nccl_triage.diagnosis.hearing import Hearing, Voice
from nccl_triage.observations.event import Event

#: Steps of one process before a silence means anything.
MIN_STEPS = 5
#: Seconds without a step that are never suspicious; and after a line that announces a long silence.
SHORTEST, ANNOUNCED = 60.0, 600.0
#: How much longer than an earlier pause, and than usual after such a line, a pause must be.
LONGER, PATIENT = 2.0, 5.0
#: Who printed nothing for this share of what is allowed is silent.
_QUIET = 0.5


@dataclass(frozen=True, slots=True)
class Last:
    """What one process printed last; ``rank`` is None where no line names one."""

    rank: int | None
    event: Event
    #: Seconds since it was heard.
    seconds: float
    silent: bool
    step: float | None
    #: Whether its last step lies before that of others.
    behind: bool


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A hang is suspected: since when, against what, and who was heard last."""

    since: float
    seconds: float
    usual: float
    limit: float
    step: float | None
    pause: Event | None
    lasts: tuple[Last, ...]


def limit(hearing: Hearing, factor: float) -> float | None:
    """Return the seconds without a step from which on a hang is suspected, None where nothing tells."""
    usual = hearing.usual
    if usual is None or hearing.steps < MIN_STEPS or hearing.done:
        return None
    found = max(SHORTEST, factor * usual, LONGER * hearing.longest)
    return max(ANNOUNCED, PATIENT * found) if hearing.pause is not None else found


def suspect(hearing: Hearing, now: float, factor: float, rank_of: Callable[[Event], int | None]) -> Suspicion | None:
    """Return the suspicion that the job hangs at this time, or None; ``factor`` usual steps are too long."""
    allowed, since, usual = limit(hearing, factor), hearing.advanced, hearing.usual
    if allowed is None or since is None or usual is None or now - since < allowed:
        return None
    merged: dict[Hashable, tuple[int | None, Voice]] = {}
    for key, voice in hearing.voices.items():
        rank = rank_of(voice.last)
        _merge(merged, key if rank is None else rank, rank, voice)
    if any(rank is not None for rank, _ in merged.values()):
        # Who is no rank (a launcher, a daemon) has no steps to wait for.
        merged = {key: found for key, found in merged.items() if found[0] is not None}
    steps = {key: step for key, (_, voice) in merged.items() if (step := _number(voice.step)) is not None}
    top = max(steps.values(), default=None)
    counted = len({_kind(voice) for key, (_, voice) in merged.items() if key in steps}) == 1
    lasts = [
        Last(
            rank,
            voice.last,
            max(0.0, now - voice.heard),
            now - voice.heard > allowed * _QUIET,
            steps.get(key),
            counted and top is not None and key in steps and steps[key] < top,
        )
        for key, (rank, voice) in merged.items()
    ]
    lasts.sort(key=lambda last: (not last.behind, not last.silent, -last.seconds, last.rank or 0, last.event.source))
    return Suspicion(since, now - since, usual, allowed, top, hearing.pause, tuple(lasts))


def _merge(into: dict[Hashable, tuple[int | None, Voice]], key: Hashable, rank: int | None, voice: Voice) -> None:
    """Put together what one rank said in several forms (with its process, without it)."""
    known = into.get(key)
    if known is None:
        into[key] = (rank, voice)
        return
    first = known[1]
    latest, stepped = max(first, voice, key=lambda v: v.heard), max(first, voice, key=lambda v: v.advanced)
    into[key] = (rank, Voice(latest.last, latest.heard, 0, stepped.step, stepped.advanced))


def _number(event: Event | None) -> float | None:
    return None if event is None else event.number("step")


def _kind(voice: Voice) -> str:
    return voice.step.signature if voice.step is not None else ""
