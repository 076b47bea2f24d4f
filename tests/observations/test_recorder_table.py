"""The table of all ranks: bounded, and the same however the dumps are put together."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.observations import recorder_table as tables
from nccl_triage.observations.recorder_table import RecorderTable
from nccl_triage.observations.store import Observations, SourceInfo
from tests.recorder import build

CALLS = st.lists(
    st.tuples(
        st.sampled_from(["all_reduce", "broadcast", "send 0->1", "recv 1<-0"]),
        st.integers(1, 3),
        st.sampled_from(["completed", "scheduled"]),
    ),
    max_size=7,
)
DUMPS = st.dictionaries(st.integers(0, 5), CALLS, min_size=1, max_size=4)


@contextmanager
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("MAX_CALLS", 4),
            ("MAX_CELLS", 6),
            ("MAX_WAYS", 2),
            ("MAX_STANDINGS", 5),
            ("MAX_PAIRS", 3),
        ):
            patch.setattr(tables, name, value)
        yield


def made(dumps: dict[int, list[build.Call]], folder: str = "a") -> RecorderTable:
    return build.table({rank: build.dump(calls, 6) for rank, calls in dumps.items()}, folder)


def merged(*parts: RecorderTable) -> RecorderTable:
    total = RecorderTable()
    for part in parts:
        total.absorb(copy.deepcopy(part))
    return total


@settings(deadline=None, max_examples=40)
@given(DUMPS, DUMPS, DUMPS)
def test_merge_is_associative_and_commutative(a: dict, b: dict, c: dict) -> None:  # type: ignore[type-arg]
    with small():
        one, two, three = made(a, "a"), made(b, "b"), made(c, "c")
        left = merged(merged(one, two), three)
        assert left == merged(one, merged(two, three))
        assert merged(one, two) == merged(two, one)
        assert merged(left, one) == left
        assert sum(len(cells) for cells in left.calls.values()) <= 6
        assert len(left.standings) <= 5 and len(left.pairs) <= 3
        assert all(len(cell.ways) <= 2 for cells in left.calls.values() for cell in cells.values())


def test_the_last_calls_are_kept() -> None:
    with small():
        found = made({0: [("all_reduce", 1)] * 9, 1: [("all_reduce", 1)] * 8})
        (cells,) = found.calls.values()
        assert found.cut and sorted(cells) == [6, 7, 8, 9]


def test_parts_that_are_absorbed_stay_as_they_were() -> None:
    one, two = made({0: [("all_reduce", 1)]}), made({1: [("all_reduce", 1)]})
    before = copy.deepcopy(two)
    total = RecorderTable()
    total.absorb(one)
    total.absorb(two)
    total.absorb(made({2: [("all_reduce", 1)]}))
    assert two == before


def test_observations_take_the_dumps_of_a_source_along() -> None:
    one, two = Observations(), Observations()
    one.add_source(SourceInfo("a", recorder=made({0: [("all_reduce", 1)]})))
    two.add_source(SourceInfo("b", recorder=made({1: [("all_reduce", 1)]})))
    both = one.merge(two)
    assert [rank for (rank,) in both.recorder.dumps] == [0, 1]
    assert all(info.recorder is None for info in both.sources.values())
