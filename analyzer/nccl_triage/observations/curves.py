"""Numbers that a program prints as it goes (loss, step time, memory): a sample of the lines that report them.

Of each kind of line (by the formats whose literals it has) the table keeps the ``SAMPLE`` lines with the smallest
marks. A mark depends on the line's place alone, so that most lines of a long log need not be read. It also keeps the
first and the last line of each process that show the job advancing, and the first numbers that are not finite.
However a log is cut into parts, merging them gives the same table.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

#: Kinds of lines, sampled lines per kind, processes per kind whose first and last lines are kept, and numbers kept
#: that are not finite.
MAX_KINDS, SAMPLE, MAX_PROCESSES, MAX_STRANGE = 32, 512, 64, 8
#: What is not known in a row or a process.
NOT_KNOWN = -1
#: How numbers that are not finite are written: rows must be comparable, and nan is not.
STRANGE = ("nan", "inf", "-inf")
_MARKS = 1 << 64


class CurveProcess(NamedTuple):
    """Who printed a line: ``event.Context`` in a form that sorts; ``NOT_KNOWN`` and "" where a line does not tell."""

    rank: int = NOT_KNOWN
    local_rank: int = NOT_KNOWN
    group_rank: int = NOT_KNOWN
    host: str = ""
    pid: int = NOT_KNOWN
    source: str = ""
    place: str = ""
    writer: int = NOT_KNOWN


class CurveRow(NamedTuple):
    """The numbers of one line; rows sort by source and line.

    ``step`` and ``epoch`` are as printed, ``time`` in seconds as in ``event.Context``; -1.0 where not known.
    ``values`` are pairs of a metric's id and a finite number in the metric's unit, ``strange`` pairs of an id and one
    of ``STRANGE``.
    """

    source: str
    line: int
    step: float
    epoch: float
    time: float
    process: CurveProcess
    values: tuple[tuple[str, float], ...] = ()
    strange: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Ends:
    """The first and the last row of one process."""

    first: CurveRow
    last: CurveRow

    def add(self, row: CurveRow) -> None:
        """Take a row."""
        if row > self.last:
            self.last = row
        elif row < self.first:
            self.first = row


@dataclass(slots=True)
class CurveSample:
    """The rows of one kind with the smallest marks."""

    rows: list[tuple[int, CurveRow]] = field(default_factory=list)
    limit: int = _MARKS

    def add(self, mark: int, row: CurveRow) -> None:
        """Take a row; sorting waits until twice as many as needed have come."""
        if mark < self.limit:
            self.rows.append((mark, row))
            if len(self.rows) >= 2 * SAMPLE:
                self.thin()

    def thin(self) -> None:
        """Keep the smallest marks."""
        self.rows.sort()
        del self.rows[SAMPLE:]
        if len(self.rows) == SAMPLE:
            self.limit = self.rows[-1][0] + 1

    def share(self) -> float:
        """Return the share of the kind's lines that is in the sample, 1.0 for all (estimated to some percent)."""
        self.thin()
        return 1.0 if self.limit == _MARKS else self.limit / _MARKS


@dataclass(slots=True)
class CurveTable:
    """All rows by the kind of their line (see ``kind_of``)."""

    #: Kind -> what a mark must be below; rows above would be dropped when this is merged with what came before.
    limits: Mapping[int, int] = field(default_factory=dict, compare=False, repr=False)
    #: Kind -> the process from which on no first and last row would be kept.
    beyond: Mapping[int, CurveProcess] = field(default_factory=dict, compare=False, repr=False)
    samples: dict[int, CurveSample] = field(default_factory=dict)
    ends: dict[int, dict[CurveProcess, Ends]] = field(default_factory=dict)
    #: Metric -> the first rows in which it was not finite, and how many there were.
    strange: dict[str, tuple[list[CurveRow], int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.samples)

    def wants(self, kind: int, mark: int) -> bool:
        """Tell whether a line of this kind with this mark may belong to the sample."""
        sample = self.samples.get(kind)
        return mark < (self.limits.get(kind, _MARKS) if sample is None else sample.limit)

    def follows(self, kind: int, process: CurveProcess) -> bool:
        """Tell whether a process may belong to those whose first and last row are kept in the end."""
        beyond = self.beyond.get(kind)
        return beyond is None or process < beyond

    def lacks(self, kind: int, process: CurveProcess) -> bool:
        """Tell whether a process may belong to those with a first and a last row, and has none yet."""
        ends = self.ends.get(kind)
        if ends is None:
            return True
        return process not in ends and (len(ends) < MAX_PROCESSES or process < max(ends))

    def add(self, kind: int, mark: int, row: CurveRow, advances: bool) -> None:
        """Take a row; ``advances``: the line shows that the job goes on."""
        sample = self.samples.get(kind)
        if sample is None:
            sample = self.samples[kind] = CurveSample(limit=self.limits.get(kind, _MARKS))
        sample.add(mark, row)
        if advances:
            self._add_end(kind, row)
        for metric, _ in row.strange:
            self._add_strange(metric, [row], 1)

    def marks(self) -> dict[int, list[int]]:
        """Return the marks of the sampled rows by kind."""
        return {kind: [mark for mark, _ in sample.rows] for kind, sample in self.samples.items()}

    def absorb(self, other: CurveTable) -> None:
        """Take over the rows of another part; associative and commutative."""
        for kind, theirs in other.samples.items():
            mine = self.samples.setdefault(kind, CurveSample())
            mine.rows.extend(theirs.rows)
            mine.thin()
        for kind, processes in other.ends.items():
            for ends in processes.values():
                self._add_end(kind, ends.first)
                self._add_end(kind, ends.last)
        for metric, (rows, number) in other.strange.items():
            self._add_strange(metric, rows, number)

    def sampled(self) -> list[tuple[int, int, CurveRow]]:
        """Return (mark, kind, row) of the samples by mark: any first n of them are spread over the logs, too."""
        for sample in self.samples.values():
            sample.thin()
        return sorted((mark, kind, row) for kind, sample in self.samples.items() for mark, row in sample.rows)

    def outermost(self) -> list[CurveRow]:
        """Return the first and last rows of the processes, in order."""
        return sorted({row for found in self.ends.values() for e in found.values() for row in (e.first, e.last)})

    def _add_end(self, kind: int, row: CurveRow) -> None:
        """Keep the ends of the first ``MAX_PROCESSES`` in order; one that was pushed out never comes back."""
        processes = self.ends.setdefault(kind, {})
        found = processes.get(row.process)
        if found is not None:
            found.add(row)
            return
        processes[row.process] = Ends(row, row)
        if len(processes) > MAX_PROCESSES:
            del processes[max(processes)]

    def _add_strange(self, metric: str, rows: list[CurveRow], number: int) -> None:
        known, count = self.strange.get(metric, ([], 0))
        self.strange[metric] = (sorted([*known, *rows])[:MAX_STRANGE], count + number)


def limit_of(marks: list[int], more: Iterable[int]) -> int:
    """Add marks to the smallest ones, sorted in place, and return what a mark must be below to join them."""
    marks += more
    marks.sort()
    del marks[SAMPLE:]
    return marks[-1] + 1 if len(marks) == SAMPLE else _MARKS


@lru_cache(maxsize=4096)
def seed_of(source: str) -> int:
    """Return the start of the marks of a source's lines."""
    return zlib.crc32(source.encode("utf-8", "surrogatepass")) * 0xD6E8FEB86659FD93 & (_MARKS - 1)


def mark_of(seed: int, line: int) -> int:
    """Return the 64-bit mark of a line: a multiple of the golden section, which spreads any range of lines evenly."""
    return (seed + line * 0x9E3779B97F4A7C15) & (_MARKS - 1)


@lru_cache(maxsize=4096)
def kind_of(formats: tuple[str, ...]) -> int:
    """Return the kind of a line with literals of these formats; which of them can read it is not known yet."""
    return zlib.crc32("|".join(formats).encode()) % MAX_KINDS
