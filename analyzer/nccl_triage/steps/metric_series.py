"""Metrics of training steps as series of each process since its last start, and robust statistics of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from nccl_triage.numbers import median
from nccl_triage.observations.curves import CurveProcess, CurveRow
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import times

#: Median absolute deviation of a normal distribution -> its standard deviation.
_NORMAL = 1.4826
#: Numbers that say what is usual: at least and at most.
MIN_USUAL, MAX_USUAL = 8, 100
#: The last numbers that may be unusual: this share of all.
_TAIL = 4


class Usual(NamedTuple):
    """The usual range of numbers: median, spread (as a standard deviation), lowest and highest."""

    middle: float
    spread: float
    low: float
    high: float


def usual(values: Sequence[float]) -> Usual:
    """Return the usual range of at least one number. The spread is never below a thousandth of the median."""
    middle = median(values)
    spread = _NORMAL * median(abs(value - middle) for value in values)
    return Usual(middle, max(spread, abs(middle) / 1000, 1e-12), min(values), max(values))


def tail(
    values: Sequence[float], unusual: Callable[[float, Usual], bool], window: int = MAX_USUAL
) -> tuple[int, Usual] | None:
    """Return how many of the last numbers are unusual compared with those before, or None.

    ``values`` begin after the warm-up; at most ``window`` of them say what is usual.
    """
    longest = max(1, len(values) // _TAIL)
    before = values[:-longest][-window:]
    if len(before) < MIN_USUAL:
        return None
    known = usual(before)
    length = 0
    while length < longest and unusual(values[-1 - length], known):
        length += 1
    return (length, known) if length else None


#: A step that falls back by more than this share of the steps seen is a new start.
_FALL_BACK = 0.1
#: Time stamps in whole seconds tell the time of a step that takes at least so many of them.
_COARSE = 3.0


@dataclass(slots=True)
class MetricSeries:
    """One metric as one process printed it in one kind of line; ``points`` are in the order of the lines."""

    metric: str
    process: CurveProcess
    points: list[tuple[CurveRow, float]] = field(default_factory=list)
    derived: bool = False

    @property
    def values(self) -> list[float]:
        """The numbers, in order."""
        return [value for _, value in self.points]

    def settled(self) -> list[tuple[CurveRow, float]]:
        """Return the points without the first tenth: warm-up, compilation, an empty cache."""
        return self.points[max(1, len(self.points) // 10) :]


class JobMetrics:
    """All series of a job, and the places of its failures."""

    def __init__(self, observations: Observations) -> None:
        self.table = observations.curves
        self._failures: dict[str, list[Event]] = defaultdict(list)
        for by_key in observations.buckets.values():
            for bucket in by_key.values():
                for event in bucket.events():
                    # Lines that only say that a value is not a number are no failure of their own.
                    if event.is_failure and event.fields.get("says") != "no-number":
                        self._failures[event.source].append(event)
        self._rows = _rows(observations)
        self._all: dict[str, list[MetricSeries]] = defaultdict(list)
        for rows in self._rows.values():
            for series in _by_metric(rows):
                self._all[series.metric].append(series)

    def of(self, *metrics: str) -> list[MetricSeries]:
        """Return the series of metrics."""
        return [series for metric in metrics for series in self._all.get(metric, ())]

    def fails_after(self, row: CurveRow) -> bool:
        """Tell whether a failure stands behind a row: in its source by line, in others by time where that is known."""
        own = self._failures.get(row.source)
        if own:
            return any(event.line > row.line for event in own)
        return any(_later(event, row) for events in self._failures.values() for event in events)

    def timed(self) -> list[MetricSeries]:
        """Return step times computed from time stamps, for sources that print none."""
        printed = {series.process.source for series in self.of("step_time")}
        best: dict[CurveProcess, MetricSeries] = {}
        for (kind, process), rows in self._rows.items():
            if process.source in printed:
                continue
            sample = self.table.samples.get(kind)
            series = _from_stamps(process, rows, sample is not None and sample.share() == 1)
            if process not in best or len(series.points) > len(best[process].points):
                best[process] = series
        return [series for series in best.values() if series.points]


def _later(event: Event, row: CurveRow) -> bool:
    time = event.context.time
    if time is None or row.time < 0 or times.has_year(time) != times.has_year(row.time):
        return True  # nothing orders them: the source of the row just ends
    return time >= row.time


def _rows(observations: Observations) -> dict[tuple[int, CurveProcess], list[CurveRow]]:
    """Return the rows by kind of line and process, each since the last start of its process."""
    found: dict[tuple[int, CurveProcess], set[CurveRow]] = defaultdict(set)
    for _, kind, row in observations.curves.sampled():
        found[kind, row.process].add(row)
    for kind, processes in observations.curves.ends.items():
        for process, ends in processes.items():
            found[kind, process] |= {ends.first, ends.last}
    return {key: _since_start(sorted(rows)) for key, rows in sorted(found.items())}


def _since_start(rows: list[CurveRow]) -> list[CurveRow]:
    top, low, start = -1.0, 0.0, 0
    for index, row in enumerate(rows):
        if row.step < 0:
            continue
        if top >= 0 and top - row.step > max(2.0, _FALL_BACK * (top - low)):
            top, low, start = row.step, row.step, index
        elif top < 0:
            top = low = row.step
        top = max(top, row.step)
    return rows[start:]


def _by_metric(rows: list[CurveRow]) -> list[MetricSeries]:
    found: dict[str, MetricSeries] = {}
    for row in rows:
        for metric, value in row.values:
            found.setdefault(metric, MetricSeries(metric, row.process)).points.append((row, value))
    return list(found.values())


def _from_stamps(process: CurveProcess, rows: list[CurveRow], complete: bool) -> MetricSeries:
    """Return the seconds a step that lie between lines of different steps, averaged over the steps between them.

    Where no line tells its step (Hugging Face prints the epoch alone) it is the time from line to line, if ``complete``:
    no line is left out.
    """
    placed: list[CurveRow] = []
    stepless = complete and all(row.step < 0 for row in rows)
    for row in rows:
        advances = stepless or (row.step >= 0 and (not placed or row.step > placed[-1].step))
        if row.time >= 0 and advances:
            placed.append(row)
    series = MetricSeries("step_time", process, derived=True)
    spans = [(two.time - one.time, 1.0 if stepless else two.step - one.step, two) for one, two in pairwise(placed)]
    whole = all(row.time == int(row.time) for row in placed)
    if not spans or (whole and usual([span for span, _, _ in spans]).middle < _COARSE):
        return series
    series.points = [(row, span / steps) for span, steps, row in spans if span >= 0]
    return series
