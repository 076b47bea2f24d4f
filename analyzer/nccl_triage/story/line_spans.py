"""Lines of sources that blocks cover. What many ranks print at once is interleaved: each block then spans all others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import groupby
from typing import Generic, TypeVar

Owner = TypeVar("Owner")
#: A source, and the first and the last line of a block in it.
Span = tuple[str, int, int]


class LineSpans:
    """Whether lines are covered by one of some spans."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._begins: dict[str, list[int]] = {}
        self._ends: dict[str, list[int]] = {}
        for source, own in groupby(sorted(spans), lambda span: span[0]):
            begins = self._begins[source] = []
            ends = self._ends[source] = []
            for _, first, last in own:
                if ends and first <= ends[-1]:
                    ends[-1] = max(ends[-1], last)
                else:
                    begins.append(first)
                    ends.append(last)

    def hold(self, source: str, line: int) -> bool:
        """Tell whether a span covers a line."""
        at = bisect_right(self._begins.get(source, ()), line) - 1
        return at >= 0 and line <= self._ends[source][at]


class LineOwners(Generic[Owner]):
    """Which block each of some lines belongs to; the first one that covers a line has it."""

    def __init__(self, lines: Iterable[tuple[str, int]]) -> None:
        self.found: dict[tuple[str, int], Owner] = {}
        self._lines: dict[str, list[int]] = {}
        for source, line in sorted(set(lines)):
            self._lines.setdefault(source, []).append(line)
        #: For each place of a line the next one whose line has no owner, as far as is known.
        self._next = {source: list(range(len(own) + 1)) for source, own in self._lines.items()}

    def cover(self, source: str, first: int, last: int, owner: Owner) -> None:
        """Give the lines of a block that nobody has to it."""
        lines, following = self._lines.get(source, []), self._next.get(source, [0])
        at = bisect_left(lines, first)
        while (at := self._free(following, at)) < len(lines) and lines[at] <= last:
            self.found[source, lines[at]] = owner
            following[at] = at + 1

    @staticmethod
    def _free(following: list[int], at: int) -> int:
        while following[at] != at:
            following[at] = following[following[at]]
            at = following[at]
        return at
