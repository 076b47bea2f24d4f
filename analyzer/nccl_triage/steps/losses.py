"""Losses and gradient norms that left their range before the failure, or for good without one."""

from __future__ import annotations

from nccl_triage.observations.curves import Row
from nccl_triage.steps.marks import Mark
from nccl_triage.steps.robust import Usual, tail
from nccl_triage.steps.tracks import Tracks

#: Metric -> how many times its usual value is a spike. Losses of reinforcement learning are noisy and change sign.
_SPIKE = {"loss": 1.5, "grad_norm": 10.0}
#: Metrics that must be finite.
_FINITE = ("loss", "policy_loss", "critic_loss", "grad_norm")
#: Standard deviations above the usual, factor above the highest that was usual, and the factor above which one number
#: is enough where otherwise two are needed.
_SIGMA, _ABOVE_ALL, _ALONE = 8.0, 1.1, 4.0
#: Numbers before the last ones with which they are compared: a loss falls, so what was long ago says nothing.
_WINDOW = 20
#: Infinite gradient norms that a loss scaler may make: so few mean nothing.
_OVERFLOWS = 3
#: Numbers in a row, the last ones of a log without a failure, that say that a metric will not come back. A loss scaler
#: leaves out a few steps at the start, and each of them may print a gradient norm that is none.
_FOR_GOOD = {"loss": 3, "policy_loss": 3, "critic_loss": 3, "grad_norm": 6}


def spikes(tracks: Tracks) -> list[Mark]:
    """Return where losses rose and stayed high until a failure."""
    found: list[Mark] = []
    for track in tracks.of(*_SPIKE):
        factor = _SPIKE[track.metric]

        def high(value: float, known: Usual, factor: float = factor) -> bool:
            above = known.middle > 0 and value > factor * known.middle and value > _ABOVE_ALL * known.high
            return above and value > known.middle + _SIGMA * known.spread

        points = track.settled()
        run = tail([value for _, value in points], high, _WINDOW)
        if run is None:
            continue
        length, known = run
        (row, _), top = points[-length], max(value for _, value in points[-length:])
        if (length > 1 or top > _ALONE * factor * known.middle) and tracks.fails_after(row):
            found.append(Mark("steps.loss_spike", track.metric, row, top, known.middle, len(points)))
    return found


def not_finite(tracks: Tracks) -> list[Mark]:
    """Return where losses stopped to be finite for good, before a failure or without one."""
    found: list[Mark] = []
    for metric in _FINITE:
        rows, _ = tracks.table.strange.get(metric, ([], 0))
        last: dict[object, Row] = {}
        for track in tracks.of(metric):
            last[track.process] = max(track.points[-1][0], last.get(track.process, track.points[-1][0]))
        tails: dict[object, list[Row]] = {}
        for row in rows:
            if row.process not in last or row > last[row.process]:
                tails.setdefault(row.process, []).append(row)
        found += [mark for own in tails.values() if (mark := _lost(tracks, metric, own)) is not None]
    return found


def _lost(tracks: Tracks, metric: str, rows: list[Row]) -> Mark | None:
    """Judge the last rows of a process, in none of which a metric is finite."""
    word = dict(rows[0].strange)[metric]
    scaled = metric == "grad_norm" and word != "nan"
    if tracks.fails_after(rows[0]):
        name, needed = "steps.loss_not_finite", _OVERFLOWS if scaled else 1
    elif scaled:
        return None
    else:
        name, needed = "steps.loss_lost", _FOR_GOOD[metric]
    return Mark(name, metric, rows[0], 0.0, 0.0, len(rows), word=word) if len(rows) >= needed else None
