"""Curves: bounded, exact where they say so, and the same however the log was cut."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_triage import curves
from nccl_triage.curves import CurveTable, Point, Process
from nccl_triage.events import Observations

Numbers = list[tuple[str, Point]]


@contextmanager
def small() -> Iterator[None]:
    """Make the bounds small enough to be reached by small examples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "SAMPLE", 6)
        patch.setattr(curves, "MAX_PROCESSES", 3)
        patch.setattr(curves, "MAX_STRANGE", 2)
        yield


def table(numbers: Numbers) -> CurveTable:
    found = CurveTable()
    for metric, point in numbers:
        found.add([(metric, point.value)], point)
    return found


def view(found: CurveTable) -> object:
    return {
        metric: (curve.whole, dict(curve.processes), curve.sample())
        for metric, curve in sorted(found.curves.items())
    }  # fmt: skip


def point(line: int, value: float, rank: int = 0, source: str = "log", step: float = -1.0) -> Point:
    return Point(source, line, step, -1.0, -1.0, value, Process(rank=rank, source=source))


@st.composite
def numbers(draw: st.DrawFn) -> Numbers:
    one = st.builds(
        lambda metric, line, value, rank, source, step: (metric, point(line, value, rank, source, step)),
        st.sampled_from(["loss", "step_time"]),
        st.integers(1, 60),
        st.floats(-5, 5) | st.sampled_from([math.nan, math.inf, -math.inf]),
        st.integers(-1, 6),
        st.sampled_from(["a", "b"]),
        st.integers(-1, 9).map(float),
    )
    return draw(st.lists(one, max_size=40))


def merged(*parts: CurveTable) -> CurveTable:
    total = CurveTable()
    for part in parts:
        total.absorb(part)
    return total


@given(numbers(), numbers(), numbers())
def test_merge_is_associative_and_commutative(a: Numbers, b: Numbers, c: Numbers) -> None:
    with small():
        left = merged(merged(table(a), table(b)), table(c))
        right = merged(table(a), merged(table(b), table(c)))
        assert view(left) == view(right)
        assert view(merged(table(a), table(b))) == view(merged(table(b), table(a)))


@given(numbers(), st.lists(st.integers(0, 40), max_size=4))
def test_any_cut_of_a_log_gives_the_same_curves(whole: Numbers, cuts: list[int]) -> None:
    with small():
        places = [0, *sorted(cuts), len(whole)]
        parts = [table(whole[a:b]) for a, b in pairwise(places)]
        assert view(merged(*parts)) == view(table(whole))


@given(numbers())
def test_counts_and_extremes_are_exact(given_numbers: Numbers) -> None:
    with small():
        found = table(given_numbers)
        for metric, curve in found.curves.items():
            own = [p for name, p in given_numbers if name == metric]
            finite = [p for p in own if math.isfinite(p.value)]
            assert curve.whole.count == len(finite)
            assert curve.whole.strange_count == len(own) - len(finite)
            if finite:
                assert curve.whole.first == min(finite) and curve.whole.last == max(finite)
                assert curve.whole.lowest is not None and curve.whole.lowest.value == min(p.value for p in finite)
                assert curve.whole.highest is not None and curve.whole.highest.value == max(p.value for p in finite)
            assert len(curve.sample()) == min(len(finite), 6)
            ranks = sorted({p.process for p in own})[:3]
            assert sorted(curve.processes) == ranks
            assert sum(s.count + s.strange_count for s in curve.processes.values()) == sum(
                p.process in ranks for p in own
            )


def test_space_is_bounded_and_the_sample_is_spread_over_the_log() -> None:
    found = CurveTable()
    for line in range(1, 60_001):
        found.add([("loss", 1 / line)], point(line, 0.0, rank=line % 500, step=float(line)))
    curve = found.curves["loss"]
    sample = curve.sample()
    assert len(sample) == curves.SAMPLE
    assert len(curve.processes) == curves.MAX_PROCESSES
    assert len(pickle.dumps(found)) < 400_000
    tenths = [sum(p.line // 6000 == tenth for p in sample) for tenth in range(10)]
    assert min(tenths) > curves.SAMPLE / 10 / 2
    first = sorted(p.line for p in sample[:50])
    assert first[0] < 12_000 and first[-1] > 48_000  # the first few marks are spread, too


def test_a_process_that_was_pushed_out_does_not_come_back() -> None:
    with small():
        found = CurveTable()
        for rank in (5, 6, 7, 1, 7, 2, 3, 6):
            found.add([("loss", float(rank))], point(rank, 0.0, rank=rank))
        assert [process.rank for process in sorted(found.curves["loss"].processes)] == [1, 2, 3]


def test_the_kind_of_a_strange_number_is_kept() -> None:
    found = table([("loss", point(line, v)) for line, v in enumerate((math.nan, math.inf, -math.inf), 1)])
    kinds = [p.value for p in found.curves["loss"].whole.strange]
    assert kinds == [curves.NAN, curves.INFINITE, curves.MINUS_INFINITE]


def test_observations_take_the_curves_along() -> None:
    one, two = Observations(), Observations()
    one.curves.add([("loss", 1.0)], point(1, 0.0))
    two.curves.add([("loss", 2.0)], point(2, 0.0))
    both = one.merge(two)
    assert [p.value for p in sorted(both.curves.curves["loss"].sample())] == [1.0, 2.0]
    assert one.curves.curves["loss"].whole.count == 1  # merging leaves its parts alone
