"""Bisection against worlds whose guilty members are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.verify.narrow import Narrowed, narrow

LIMIT = 24
Fails = Callable[[tuple[int, ...]], bool]


class World:
    """Units 0..size-1; a group fails when it holds one of the guilty sets as a whole."""

    def __init__(self, size: int, *guilty: set[int]) -> None:
        self.units = list(range(size))
        self.guilty = guilty
        self.asked: list[tuple[int, ...]] = []

    def fails(self, group: tuple[int, ...]) -> bool:
        assert len(group) >= 2, "a collective takes two"
        assert list(group) == sorted(set(group)), "each once, in the order of the whole"
        self.asked.append(group)
        return any(guilty <= set(group) for guilty in self.guilty)

    def narrow(self, limit: int = LIMIT) -> Narrowed[int]:
        found = narrow(self.units, self.fails, limit=limit)
        assert found.tests == len(self.asked) <= limit
        return found


def at_most(size: int) -> int:
    """Return the runs that one guilty unit takes at most: two a halving, four to tell it from its last companion."""
    return 2 * math.ceil(math.log2(size)) + 4


@given(st.data(), st.integers(3, 1024))
@settings(max_examples=120, deadline=None)
def test_one_bad_unit_is_found_in_logarithmic_time(data: st.DataObject, size: int) -> None:
    world = World(size, {data.draw(st.integers(0, size - 1))})
    found = world.narrow()
    assert (set(found.units), found.kind) == (world.guilty[0], "one")
    assert found.tests <= at_most(size)


@pytest.mark.parametrize("size", [3, 4, 5, 7, 8, 9, 31, 33])
def test_every_single_bad_unit_of_small_worlds_is_found(size: int) -> None:
    for bad in range(size):
        found = World(size, {bad}).narrow()
        assert (found.units, found.kind) == ((bad,), "one")


@given(st.data(), st.integers(2, 1024))
@settings(max_examples=120, deadline=None)
def test_one_bad_pair_is_found_or_a_group_that_holds_it(data: st.DataObject, size: int) -> None:
    pair = set(data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True)))
    world = World(size, pair)
    found = world.narrow()
    assert pair <= set(found.units)
    if found.kind == "group":
        assert found.tests > LIMIT - 4, "it may only give up when the runs are used up: the last question takes four"
    else:
        assert (set(found.units), found.kind) == (pair, "pair")


@pytest.mark.parametrize("size", [2, 3, 5, 8, 16])
def test_every_bad_pair_of_small_worlds_is_found(size: int) -> None:
    for one in range(size):
        for two in range(one + 1, size):
            found = World(size, {one, two}).narrow()
            assert (found.units, found.kind) == ((one, two), "pair")


@given(st.data(), st.integers(2, 1024))
@settings(max_examples=60, deadline=None)
def test_a_pair_takes_logarithmic_time_where_runs_are_free(data: st.DataObject, size: int) -> None:
    pair = set(data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True)))
    found = World(size, pair).narrow(limit=1000)
    assert (set(found.units), found.kind) == (pair, "pair")
    assert found.tests <= 4 * math.ceil(math.log2(size)) + 6


@given(st.data(), st.integers(2, 200), st.integers(0, 30), st.integers(1, 3))
@settings(max_examples=120, deadline=None)
def test_what_the_limit_leaves_untested_is_not_claimed(
    data: st.DataObject, size: int, limit: int, members: int
) -> None:
    """Whatever the limit: the group returned holds what is guilty, and one or a pair is named only when it was tested."""
    guilty = set(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=min(members, size), unique=True)))
    world = World(size, guilty)
    found = world.narrow(limit=limit)
    if found.kind == "one":
        assert set(found.units) == guilty
    elif found.kind == "pair":
        assert guilty <= set(found.units)
        assert size == 2 or len(guilty) == 2, "one guilty unit must not be called a pair"
    else:
        assert guilty <= set(found.units)


def test_a_world_that_recovers_names_nobody() -> None:
    """It failed, and no part of it does: a transient fault, or one that takes more members than are left."""
    found = World(64).narrow()
    assert found.kind == "group"
    assert len(found.units) > 2


@given(st.integers(3, 64), st.data())
@settings(max_examples=60, deadline=None)
def test_two_bad_units_are_not_called_a_pair_of_innocents(size: int, data: st.DataObject) -> None:
    """Each fails with anybody: to say that it takes both would acquit them of what each does alone."""
    bad = data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))
    found = World(size, {bad[0]}, {bad[1]}).narrow(limit=1000)
    assert set(found.units) & set(bad)
    if size > 3:
        assert found.kind != "pair"


def test_units_keep_their_order_whatever_they_are() -> None:
    names = ["gpu-c", "gpu-a", "gpu-b", "gpu-d"]
    asked: list[tuple[str, ...]] = []

    def fails(group: tuple[str, ...]) -> bool:
        asked.append(group)
        return "gpu-b" in group

    assert narrow(names, fails).units == ("gpu-b",)
    assert all(list(group) == [name for name in names if name in group] for group in asked)
