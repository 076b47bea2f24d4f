"""Robust statistics of few numbers: what is usual, how far numbers stray from it, and what the last of them do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: Median absolute deviation of a normal distribution -> its standard deviation.
_NORMAL = 1.4826
#: Numbers that say what is usual: at least and at most.
MIN_USUAL, MAX_USUAL = 8, 100
#: The last numbers that may be unusual: this share of all.
_TAIL = 4


@dataclass(frozen=True, slots=True)
class Usual:
    """What numbers usually are: median, spread (as a standard deviation), lowest and highest."""

    middle: float
    spread: float
    low: float
    high: float


def usual(values: Sequence[float]) -> Usual:
    """Return what numbers usually are; at least one is needed. The spread is never below a thousandth of the median."""
    from statistics import median  # it brings fractions and random along: no verdict without numbers waits for them

    middle = median(values)
    spread = _NORMAL * median(abs(value - middle) for value in values)
    return Usual(middle, max(spread, abs(middle) / 1000, 1e-12), min(values), max(values))


def tail(
    values: Sequence[float], unusual: Callable[[float, Usual], bool], window: int = MAX_USUAL
) -> tuple[int, Usual] | None:
    """Return how many of the last numbers are unusual against those before them; None for none and for too few numbers.

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
