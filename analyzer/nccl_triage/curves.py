"""Numbers that a program prints as it goes (loss, step time, memory), kept in bounded space and mergeable.

Of each metric the table keeps exact counts, the first, last, lowest and highest point of everything and of each of
the first ``MAX_PROCESSES`` processes, and a sample: the ``SAMPLE`` points with the smallest marks, where a mark is
made of the line's place alone. So whatever way a log is cut into parts, the parts put together give the same table.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

#: Points sampled of one metric, processes of one metric that are told apart, points kept that are no numbers.
SAMPLE, MAX_PROCESSES, MAX_STRANGE = 1024, 64, 8
#: What is not known in a point or a process.
NOT_KNOWN = -1
#: Codes of values that are no finite numbers: points must be comparable.
NAN, INFINITE, MINUS_INFINITE = 0.0, 1.0, -1.0
_MASK = (1 << 64) - 1


class Process(NamedTuple):
    """Who printed a number: ``events.Context`` in a form that sorts; ``NOT_KNOWN`` and "" where a line does not tell."""

    rank: int = NOT_KNOWN
    local_rank: int = NOT_KNOWN
    group_rank: int = NOT_KNOWN
    host: str = ""
    pid: int = NOT_KNOWN
    source: str = ""


class Point(NamedTuple):
    """One number of one line; points sort by source and line.

    ``step`` and ``epoch`` are as printed, ``time`` in seconds as in ``events.Context``; -1.0 where not known. The
    ``value`` is in the metric's unit, or one of the codes above in a list of strange points.
    """

    source: str
    line: int
    step: float
    epoch: float
    time: float
    value: float
    process: Process


@dataclass(slots=True)
class Summary:
    """Exact figures of some points: how many, the first and last by place, the lowest and highest by value."""

    count: int = 0
    first: Point | None = None
    last: Point | None = None
    lowest: Point | None = None
    highest: Point | None = None
    strange: list[Point] = field(default_factory=list)
    strange_count: int = 0

    def add(self, point: Point) -> None:
        """Take a point with a finite value."""
        self.count += 1
        if self.first is None or self.last is None or self.lowest is None or self.highest is None:
            self.first = self.last = self.lowest = self.highest = point
            return
        if point > self.last:
            self.last = point
        elif point < self.first:
            self.first = point
        if _lower(point, self.lowest):
            self.lowest = point
        if _lower(self.highest, point):
            self.highest = point

    def add_strange(self, points: Iterable[Point], number: int) -> None:
        """Take points whose values are no finite numbers; the first few are kept."""
        self.strange_count += number
        self.strange = sorted([*self.strange, *points])[:MAX_STRANGE]

    def absorb(self, other: Summary) -> None:
        """Take over another summary."""
        count = self.count + other.count
        for point in (other.first, other.last, other.lowest, other.highest):
            if point is not None:
                self.add(point)
        self.count = count
        self.add_strange(other.strange, other.strange_count)

    def ends(self) -> list[Point]:
        """Return the first, last, lowest and highest point, each once, in order."""
        return sorted({p for p in (self.first, self.last, self.lowest, self.highest) if p is not None})


def _lower(one: Point, two: Point) -> bool:
    return (one.value, one) < (two.value, two) if one.value == two.value else one.value < two.value


@dataclass(slots=True)
class Curve:
    """One metric of all processes."""

    whole: Summary = field(default_factory=Summary)
    processes: dict[Process, Summary] = field(default_factory=dict)
    _sample: list[tuple[int, Point]] = field(default_factory=list)
    _limit: int = _MASK + 1
    _last_process: Process | None = None

    def sample(self) -> list[Point]:
        """Return the sampled points in the order of their marks: any first n of them are a fair sample, too."""
        self._thin(0)
        return [point for _, point in self._sample]

    def add(self, mark: int, point: Point) -> None:
        """Take a point."""
        summaries = (self.whole, self._process(point.process))
        if not math.isfinite(point.value):
            coded = point._replace(value=_code(point.value))
            for summary in summaries:
                if summary is not None:
                    summary.add_strange([coded], 1)
            return
        for summary in summaries:
            if summary is not None:
                summary.add(point)
        if mark < self._limit:
            self._sample.append((mark, point))
            self._thin(SAMPLE)

    def absorb(self, other: Curve) -> None:
        """Take over the points of another part."""
        self.whole.absorb(other.whole)
        for process, theirs in other.processes.items():
            mine = self._process(process)
            if mine is not None:
                mine.absorb(theirs)
        self._sample.extend(other._sample)
        self._thin(0)

    def _process(self, process: Process) -> Summary | None:
        """Return the summary of a process, or None when it is not among the first ``MAX_PROCESSES``.

        One that was pushed out never comes back: those before it stay.
        """
        found = self.processes.get(process)
        if found is None:
            if len(self.processes) >= MAX_PROCESSES:
                last = self._last_process or max(self.processes)
                self._last_process = last
                if process > last:
                    return None
                del self.processes[last]
                self._last_process = None
            found = self.processes[process] = Summary()
        return found

    def _thin(self, slack: int) -> None:
        """Keep the smallest marks; sorting waits until ``slack`` more than needed have come."""
        if len(self._sample) > SAMPLE + slack or not slack:
            self._sample.sort()
            del self._sample[SAMPLE:]
            if len(self._sample) == SAMPLE:
                self._limit = self._sample[-1][0] + 1


@lru_cache(maxsize=4096)
def _seed(source: str) -> int:
    return zlib.crc32(source.encode("utf-8", "surrogatepass")) * 0xD6E8FEB86659FD93


def mark_of(source: str, line: int, step: float) -> int:
    """Return a 64-bit number that looks random and depends on the place alone (the finalizer of splitmix64)."""
    mixed = (line * 0x9E3779B97F4A7C15 + int(min(max(step, -1.0), 1e15)) * 0x94D049BB133111EB + _seed(source)) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def _code(value: float) -> float:
    if math.isnan(value):
        return NAN
    return INFINITE if value > 0 else MINUS_INFINITE


@dataclass(slots=True)
class CurveTable:
    """The curves of all metrics by the metric's id (``rules/series``: a closed list)."""

    curves: dict[str, Curve] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.curves)

    def add(self, values: Iterable[tuple[str, float]], place: Point) -> None:
        """Take the numbers of one line; ``place`` is a point with everything but the value."""
        source, line, step, epoch, time, _, process = place
        mark = mark_of(source, line, step)
        for metric, value in values:
            curve = self.curves.get(metric)
            if curve is None:
                curve = self.curves[metric] = Curve()
            curve.add(mark, Point(source, line, step, epoch, time, value, process))

    def absorb(self, other: CurveTable) -> None:
        """Take over the curves of another part; associative and commutative."""
        for metric, theirs in other.curves.items():
            self.curves.setdefault(metric, Curve()).absorb(theirs)
