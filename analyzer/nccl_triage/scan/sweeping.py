"""Which parts of a long log are read line by line, and which are only swept for what must not be missed.

Faults, consequences and most context are found wherever they stand. Progress and numbers (signatures that are ``often``,
formats of curves) are what a long log says a million times: its beginning and its end are read whole, of the middle some
blocks, more and more seldom, and lines that say something which the block before did not.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Blocks at either end of a source that are read whole.
HEAD, TAIL = 4, 4
#: Blocks of each doubling of the length that are read whole.
PER_DOUBLING = 2


def is_sample(ordinal: int) -> bool:
    """Tell whether a block of the middle is read whole; ``ordinal`` counts from 0 at the beginning of the source."""
    if ordinal < HEAD:
        return True
    step = max(1, (1 << (ordinal.bit_length() - 1)) // PER_DOUBLING)
    return ordinal % step == 0


class News:
    """Which literals of progress and numbers are new, or have not been looked at for long."""

    def __init__(self) -> None:
        self._runs: dict[int, int] = {}

    def of(self, firsts: Mapping[int, int]) -> list[int]:
        """Return where the literals end that are worth a look; ``firsts`` are those of the next block."""
        runs: dict[int, int] = {}
        wanted: list[int] = []
        for literal, end in firsts.items():
            run = runs[literal] = self._runs.get(literal, 0) + 1
            if run & (run - 1) == 0:  # the first block that has it, the second, fourth, eighth ..
                wanted.append(end)
        self._runs = runs
        return wanted
