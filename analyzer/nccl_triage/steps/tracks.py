"""The numbers of each process in the order of its lines, since its last start; and step times from time stamps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from nccl_triage.observations.curves import Process, Row
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import times
from nccl_triage.steps.robust import usual

#: A step that falls back by more than this share of the steps seen is a new start.
_FALL_BACK = 0.1
#: Time stamps in whole seconds tell the time of a step that takes at least so many of them.
_COARSE = 3.0


@dataclass(slots=True)
class Track:
    """One metric as one process printed it in one kind of line; ``points`` are in the order of the lines."""

    metric: str
    process: Process
    points: list[tuple[Row, float]] = field(default_factory=list)
    derived: bool = False

    @property
    def values(self) -> list[float]:
        """The numbers, in order."""
        return [value for _, value in self.points]

    def settled(self) -> list[tuple[Row, float]]:
        """Return the points without the first tenth: warm-up, compilation, an empty cache."""
        return self.points[max(1, len(self.points) // 10) :]


class Tracks:
    """All tracks of a job, and where its failures stand."""

    def __init__(self, observations: Observations) -> None:
        self.table = observations.curves
        self._failures: dict[str, list[Event]] = defaultdict(list)
        for by_key in observations.buckets.values():
            for bucket in by_key.values():
                for event in bucket.events():
                    # Lines that only say of a number that it is none are no failure of their own.
                    if event.is_failure and event.fields.get("says") != "no-number":
                        self._failures[event.source].append(event)
        self._rows = _rows(observations)
        self._all: dict[str, list[Track]] = defaultdict(list)
        for rows in self._rows.values():
            for track in _tracks(rows):
                self._all[track.metric].append(track)

    def of(self, *metrics: str) -> list[Track]:
        """Return the tracks of metrics."""
        return [track for metric in metrics for track in self._all.get(metric, ())]

    def fails_after(self, row: Row) -> bool:
        """Tell whether a failure stands behind a row: in its source by line, in others by time where that is known."""
        own = self._failures.get(row.source)
        if own:
            return any(event.line > row.line for event in own)
        return any(_later(event, row) for events in self._failures.values() for event in events)

    def timed(self) -> list[Track]:
        """Return step times made of time stamps, for sources that print none."""
        printed = {track.process.source for track in self.of("step_time")}
        best: dict[Process, Track] = {}
        for (kind, process), rows in self._rows.items():
            if process.source in printed:
                continue
            sample = self.table.samples.get(kind)
            track = _from_stamps(process, rows, sample is not None and sample.share() == 1)
            if process not in best or len(track.points) > len(best[process].points):
                best[process] = track
        return [track for track in best.values() if track.points]


def _later(event: Event, row: Row) -> bool:
    time = event.context.time
    if time is None or row.time < 0 or times.has_year(time) != times.has_year(row.time):
        return True  # nothing orders them: the source of the row just ends
    return time >= row.time


def _rows(observations: Observations) -> dict[tuple[int, Process], list[Row]]:
    """Return the rows by kind of line and process, each since the last start of its process."""
    found: dict[tuple[int, Process], set[Row]] = defaultdict(set)
    for _, kind, row in observations.curves.sampled():
        found[kind, row.process].add(row)
    for kind, processes in observations.curves.ends.items():
        for process, ends in processes.items():
            found[kind, process] |= {ends.first, ends.last}
    return {key: _since_start(sorted(rows)) for key, rows in sorted(found.items())}


def _since_start(rows: list[Row]) -> list[Row]:
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


def _tracks(rows: list[Row]) -> list[Track]:
    found: dict[str, Track] = {}
    for row in rows:
        for metric, value in row.values:
            found.setdefault(metric, Track(metric, row.process)).points.append((row, value))
    return list(found.values())


def _from_stamps(process: Process, rows: list[Row], complete: bool) -> Track:
    """Return the seconds a step that lie between lines of different steps, averaged over the steps between them.

    Where no line tells its step (Hugging Face prints the epoch alone) it is the time from line to line, if ``complete``:
    no line is left out.
    """
    placed: list[Row] = []
    stepless = complete and all(row.step < 0 for row in rows)
    for row in rows:
        advances = stepless or (row.step >= 0 and (not placed or row.step > placed[-1].step))
        if row.time >= 0 and advances:
            placed.append(row)
    track = Track("step_time", process, derived=True)
    spans = [(two.time - one.time, 1.0 if stepless else two.step - one.step, two) for one, two in pairwise(placed)]
    whole = all(row.time == int(row.time) for row in placed)
    if not spans or (whole and usual([span for span, _, _ in spans]).middle < _COARSE):
        return track
    track.points = [(row, span / steps) for span, steps, row in spans if span >= 0]
    return track
