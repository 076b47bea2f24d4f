"""Compares the speed of steps, by medians after the warm-up of each run."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.baseline.run_difference import RunDifference, place
from nccl_triage.diagnosis.case import Case
from nccl_triage.observations.curves import CurveRow
from nccl_triage.observations.event import Event
from nccl_triage.steps.anomalies import context_of
from nccl_triage.steps.metric_series import MIN_USUAL, JobMetrics, MetricSeries, Usual, usual

#: Metrics of which more is worse, and of which less is worse.
_DURATIONS = ("step_time", "data_time", "generation_time", "weight_sync_time")
_RATES = ("tokens_per_second", "samples_per_second", "tflops")
#: How many times slower a median must be, and how many standard deviations of the good run away.
_SLOWER, _SIGMA = 1.3, 4.0


def compare(good: Case, bad: Case) -> Iterator[RunDifference]:
    """Yield the metrics of speed that are worse than in the good run, beyond what varies there."""
    theirs, ours = JobMetrics(good.observations), JobMetrics(bad.observations)
    for metric in (*_DURATIONS, *_RATES):
        before, after = _typical(theirs.of(metric)), _typical(ours.of(metric))
        if metric == "step_time" and before is None and after is None:
            before, after = _typical(theirs.timed()), _typical(ours.timed())
        if before is not None and after is not None:
            yield from _compare(metric, before, after)


def _compare(metric: str, before: tuple[Usual, CurveRow], after: tuple[Usual, CurveRow]) -> Iterator[RunDifference]:
    old, new = before[0], after[0]
    if min(old.middle, new.middle) <= 0:
        return
    ratio = old.middle / new.middle if metric in _RATES else new.middle / old.middle
    if ratio < _SLOWER or abs(new.middle - old.middle) < _SIGMA * old.spread:
        return
    row = after[1]
    at = Event("", row.source, row.line, "", context_of(row.process, row.time))
    shown = [f"{side.middle:.3g}" for side in (old, new)]
    good_row = Event("", before[1].source, before[1].line, "", at.context)
    yield RunDifference("pace", metric, shown[0], shown[1], at, place(good_row), {"ratio": f"{ratio:.3g}"})


def _typical(tracks: list[MetricSeries]) -> tuple[Usual, CurveRow] | None:
    """Return what is usual over all processes, and the first line after the warm-up; None for too few numbers."""
    points = [point for track in tracks for point in track.settled()]
    if len(points) < MIN_USUAL:
        return None
    return usual([value for _, value in points]), min(row for row, _ in points)
