"""Steps that took several times as long as usual just before the failure, and throughput that broke down."""

from __future__ import annotations

from collections.abc import Callable

from nccl_triage.steps.marks import Mark
from nccl_triage.steps.robust import Usual, tail
from nccl_triage.steps.tracks import Track, Tracks

#: Durations, and by how many seconds at least the unusual ones exceed the usual.
_DURATIONS = {"step_time": 0.2, "data_time": 0.5, "generation_time": 1.0, "weight_sync_time": 1.0}
_RATES = ("tokens_per_second", "samples_per_second", "tflops")
#: Times the usual from which two steps are a slow-down, or one alone; standard deviations, and factor to the slowest
#: step that was usual: evaluations and checkpoints come again and again.
_SLOW, _ALONE, _SIGMA, _BEYOND = 3.0, 6.0, 8.0, 1.5


def slowed(tracks: Tracks) -> list[Mark]:
    """Return where the last steps before a failure are slow."""
    found: list[Mark] = []
    for track in (*tracks.of(*_DURATIONS), *tracks.timed()):
        least = _DURATIONS[track.metric]

        def slow(value: float, known: Usual, least: float = least) -> bool:
            far = value > _SLOW * known.middle and value > _BEYOND * known.high
            return far and value - known.middle > max(least, _SIGMA * known.spread)

        found += _mark(tracks, track, "steps.slow_down", slow)
    for track in tracks.of(*_RATES):

        def poor(value: float, known: Usual) -> bool:
            far = value * _SLOW < known.middle and value * _BEYOND < known.low
            return far and known.middle - value > known.spread

        found += _mark(tracks, track, "steps.throughput_drop", poor)
    return found


def _mark(tracks: Tracks, track: Track, signature: str, unusual: Callable[[float, Usual], bool]) -> list[Mark]:
    points = track.settled()
    run = tail([value for _, value in points], unusual)
    if run is None:
        return []
    length, known = run
    (row, _), last = points[-length], max((value for _, value in points[-length:]), key=lambda v: abs(v - known.middle))
    mark = Mark(signature, track.metric, row, last, known.middle, len(points), track.derived)
    enough = length > 1 or mark.ratio > _ALONE or last <= 0
    return [mark] if enough and tracks.fails_after(row) else []
