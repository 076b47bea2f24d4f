"""Narrow a failing group down to the host, the rank or the pair that makes it fail, in as few runs as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Unit = TypeVar("Unit")


@dataclass(frozen=True, slots=True)
class Narrowed(Generic[Unit]):
    """The smallest failing group found: one unit, a pair of which neither fails with others, or a group (anything else)."""

    units: tuple[Unit, ...]
    kind: Literal["one", "pair", "group"]
    tests: int


class _Search(Generic[Unit]):
    def __init__(self, units: Sequence[Unit], fails: Callable[[tuple[Unit, ...]], bool], limit: int) -> None:
        self.order = {unit: index for index, unit in enumerate(units)}
        self.fails, self.limit, self.tests = fails, limit, 0

    def bad(self, group: Sequence[Unit]) -> bool:
        """Run the collective on a group, unless the limit of runs is reached: then it counts as passing."""
        if len(group) < 2 or self.tests >= self.limit:
            return False
        self.tests += 1
        return self.fails(tuple(sorted(group, key=self.order.__getitem__)))

    def shrink(self, part: list[Unit], rest: list[Unit]) -> list[Unit]:
        """Halve ``part`` while it still fails together with ``rest``."""
        while len(part) > 1:
            half = len(part) // 2
            if self.bad(part[:half] + rest):
                part = part[:half]
            elif self.bad(part[half:] + rest):
                part = part[half:]
            else:
                break
        return part

    def smallest(self, group: list[Unit]) -> list[Unit]:
        """Return the smallest failing group that halving finds."""
        while len(group) > 2:
            half = len(group) // 2
            one, two = group[:half], group[half:]
            if self.bad(one):
                group = one
            elif self.bad(two):
                group = two
            else:
                # It takes both halves: shrink each beside the other.
                one = self.shrink(one, two)
                return one + self.shrink(two, one)
        return group


def narrow(units: Sequence[Unit], fails: Callable[[tuple[Unit, ...]], bool], *, limit: int = 24) -> Narrowed[Unit]:
    """Return what makes ``units`` fail, which are known to fail together; at most ``limit`` runs are made."""
    search: _Search[Unit] = _Search(units, fails, limit)
    group = search.smallest(list(units))
    others = [unit for unit in units if unit not in group][:2]
    # What the limit leaves untested counts as passing: nobody may be named, or acquitted, on that.
    if len(group) != 2 or search.tests + 2 * len(others) > limit:
        return Narrowed(tuple(group), "group", search.tests)
    # One bystander might be guilty, too: two say more.
    verdicts = {unit: [search.bad([unit, other]) for other in others] for unit in group}
    guilty = [unit for unit in group if verdicts[unit] and all(verdicts[unit])]
    if len(guilty) == 1:
        return Narrowed((guilty[0],), "one", search.tests)
    return Narrowed(tuple(group), "group" if guilty else "pair", search.tests)
