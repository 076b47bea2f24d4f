"""Rounds of disjoint pairs, and who is to blame for the pairs that failed. No I/O."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Unit = TypeVar("Unit", bound=Hashable)
#: Rounds in which a unit meets other partners: two name a single culprit, the third clears its partners.
ROUNDS = 3


def rounds(units: Sequence[Unit], most: int = ROUNDS) -> list[list[tuple[Unit, Unit]]]:
    """Return up to ``most`` rounds in which every unit meets one other, always another one (the circle method).

    Of an odd number one has a rest in each round.
    """
    circle: list[Unit | None] = [*units] if len(units) % 2 == 0 else [*units, None]
    found = []
    for _ in range(min(most, len(circle) - 1)):
        half = len(circle) // 2
        meeting = zip(circle[:half], reversed(circle[half:]), strict=True)
        found.append([(one, two) for one, two in meeting if one is not None and two is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found


@dataclass(frozen=True, slots=True)
class Blame(Generic[Unit]):
    """Units all of whose pairs fail, and failing pairs of units that are good with others.

    ``everywhere``: every pair failed, so that nobody stands out.
    """

    units: tuple[Unit, ...] = ()
    pairs: tuple[tuple[Unit, Unit], ...] = ()
    everywhere: bool = False


def blame(results: Mapping[tuple[Unit, Unit], bool]) -> Blame[Unit]:
    """Return who is to blame, from whether each pair failed."""
    bad = [pair for pair, failed in results.items() if failed]
    if len(results) > 1 and len(bad) == len(results) and not _common(bad):
        return Blame(pairs=tuple(bad), everywhere=True)
    units = dict.fromkeys(unit for pair in results for unit in pair)
    guilty = tuple(
        unit
        for unit in units
        if len(met := [failed for pair, failed in results.items() if unit in pair]) > 1 and all(met)
    )
    return Blame(guilty, tuple(pair for pair in bad if not set(pair) & set(guilty)))


def _common(pairs: Iterable[tuple[Unit, Unit]]) -> set[Unit]:
    """Return who is in every pair."""
    return set.intersection(*(set(pair) for pair in pairs))


def partner(unit: Unit, results: Mapping[tuple[Unit, Unit], bool], guilty: Iterable[Unit]) -> Unit | None:
    """Return somebody who has done well and has not met ``unit`` if there is such a one; None when nobody has."""
    suspects = {unit, *guilty}
    sound = {one for pair, failed in results.items() if not failed for one in pair} - suspects
    met = {one for pair in results if unit in pair for one in pair}
    ordered = [one for pair in results for one in pair if one in sound]
    return next((one for one in ordered if one not in met), ordered[0] if ordered else None)
