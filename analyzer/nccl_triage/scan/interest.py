"""Which literals of context, progress and numbers are worth following to every line that holds one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Lines in vain after which a literal is no longer followed, and lines in vain that one line with news outweighs.
PATIENCE, WORTH = 64, 16
#: Blocks at most between two that are searched for all literals of context.
STRIDE = 15
#: Lines with news in a block behind which every block is searched for all literals; with fewer, this divides the gap.
MUCH, LESS = 8, 4


class News:
    """Tells which literals are new, or have not been looked at for long."""

    def __init__(self) -> None:
        self._runs: dict[int, int] = {}

    def of(self, literals: Iterable[int]) -> list[int]:
        """Return those literals of the next block of which one line should be read."""
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
        #: Lines that were read in vain, by their literal.
        self._dull: dict[int, int] = {}
        #: Lines that were read and matched nothing, by their literal, until one does.
        self._mute: dict[int, int] = {}
        #: Blocks between two that are searched for everything, and how many of them are still to come.
        self._stride = self._leave = 0

    def awake(self) -> bool:
        """Tell whether the next block is searched for all such literals."""
        if self._leave:
            self._leave -= 1
            return False
        return True

    def of(self, literals: Iterable[int]) -> list[int]:
        """Return those literals of a block of which every line should be read."""
        dull = self._dull
        return [literal for literal in literals if dull.get(literal, 0) < PATIENCE]

    def glances(self, literals: Iterable[int]) -> list[int]:
        """Return those of the other literals of which one line should be read."""
        dull = self._dull
        return self._news.of(literal for literal in literals if dull.get(literal, 0) >= PATIENCE)

    def speaking(self, literals: Iterable[int]) -> list[int]:
        """Return those literals whose lines say something, as far as is known."""
        mute = self._mute
        return [literal for literal in literals if mute.get(literal, 0) < PATIENCE]

    def hear(self, literal: int, said: bool) -> None:
        """Take whether a line with a literal matched anything."""
        number = self._mute.get(literal, 0)
        if number >= 0:
            self._mute[literal] = -1 if said else number + 1

    def learn(self, lines: Mapping[int, int], gains: Mapping[int, int], all_searched: bool = True) -> None:
        """Take the result of a block: how many lines of each literal were read, and how many of them told something new.

        Without ``all_searched`` the block was not searched for all literals.
        """
        news = sum(gains.get(literal, 0) for literal in lines)
        if news >= MUCH:
            self._leave = self._stride = 0
        elif all_searched:
            self._leave = self._stride = self._stride // LESS if news else min(STRIDE, 2 * self._stride + 1)
        for literal, number in lines.items():
            dull = self._dull.get(literal, 0) if number > 1 or literal not in gains else 0
            self._dull[literal] = max(0, dull + number - WORTH * gains.get(literal, 0))
