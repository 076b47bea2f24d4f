"""Which parts of a long log are read line by line, and which are only swept for what must not be missed.

Faults and consequences are found wherever they stand. Context, progress and numbers are what a long log says a million
times: their literals are followed to every line as long as that tells something new (of another process, of another kind);
then a glance now and then must do, until one of those finds news. Behind a block in which none of them told anything
new, some blocks are searched only for what is found quickly, which leaves out the lines that tell of steps; much news
there, and the next block is searched for all again. The beginning and the end of a source are read whole, so are the
blocks behind a fault of a new kind; numbers are read in some blocks of the middle, more and more seldom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

#: Blocks at either end of a source that are read whole.
HEAD, TAIL = 2, 2
#: Lines that say nothing new after which a literal is no longer followed, and those that one which does makes up for.
PATIENCE, WORTH = 64, 16
#: Blocks that are not searched for all literals of context between two that are, at most.
STRIDE = 15
#: Lines with news in a block from which on nothing is left out behind it; fewer, and less is left out.
MUCH, LESS = 8, 4
#: Blocks behind a fault that was news in which everything is followed.
AFTERMATH = 2


class Coverage(Enum):
    """Which lines of a block are scanned, beside those that tell of faults and consequences."""

    #: Those that may be news.
    NEWS = "news"
    #: Also all with numbers for curves.
    NUMBERS = "numbers"
    #: All that hold a literal.
    WHOLE = "whole"


def coverage_of(ordinal: int) -> Coverage:
    """Return how much of a block is scanned; ``ordinal`` counts from 0 at the beginning of the source."""
    if ordinal < HEAD:
        return Coverage.WHOLE
    return Coverage.NUMBERS if ordinal & (ordinal - 1) == 0 else Coverage.NEWS


class News:
    """Which literals are new, or have not been looked at for long."""

    def __init__(self) -> None:
        self._runs: dict[int, int] = {}

    def of(self, literals: Iterable[int]) -> list[int]:
        """Return those literals of the next block that are worth a glance."""
        runs: dict[int, int] = {}
        wanted: list[int] = []
        for literal in literals:
            run = runs[literal] = self._runs.get(literal, 0) + 1
            if run & (run - 1) == 0:  # the first block that has it, the second, fourth, eighth ..
                wanted.append(literal)
        self._runs = runs
        return wanted


class Interest:
    """Which literals of context, progress and numbers are worth following."""

    def __init__(self) -> None:
        self._news = News()
        #: Lines that were read for a literal in vain.
        self._dull: dict[int, int] = {}
        #: Blocks that are left out between two, and how many of them are still to come.
        self._stride = self._leave = 0

    def awake(self) -> bool:
        """Tell whether the next block is searched for all such literals."""
        if self._leave:
            self._leave -= 1
            return False
        return True

    def of(self, literals: Iterable[int]) -> list[int]:
        """Return those literals of a block of which every line is wanted."""
        dull = self._dull
        return [literal for literal in literals if dull.get(literal, 0) < PATIENCE]

    def glances(self, literals: Iterable[int]) -> list[int]:
        """Return those of the other literals of which one line is wanted."""
        dull = self._dull
        return self._news.of(literal for literal in literals if dull.get(literal, 0) >= PATIENCE)

    def learn(self, lines: Mapping[int, int], gains: Mapping[int, int], all_searched: bool = True) -> None:
        """Take what came of a block: of how many lines of each literal, how many told something new.

        Without ``all_searched`` the block was one of those that are left out.
        """
        news = sum(gains.get(literal, 0) for literal in lines)
        if news >= MUCH:
            self._leave = self._stride = 0
        elif all_searched:
            self._leave = self._stride = self._stride // LESS if news else min(STRIDE, 2 * self._stride + 1)
        for literal, number in lines.items():
            dull = self._dull.get(literal, 0) if number > 1 or literal not in gains else 0
            self._dull[literal] = max(0, dull + number - WORTH * gains.get(literal, 0))
