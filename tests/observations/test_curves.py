"""Rows of curves: bounded, spread over the log, and the same however the log was cut."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_triage.observations import curves
from nccl_triage.observations.curves import CurveProcess, CurveRow, CurveTable, mark_of, seed_of
from nccl_triage.observations.store import Observations

#: What a scan hands over: kind, row, whether it shows the job advancing.
Lines = list[tuple[int, CurveRow, bool]]


@contextmanager
def small() -> Iterator[None]:
    """Make the bounds small enough to be reached by small examples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "SAMPLE", 6)
        patch.setattr(curves, "MAX_PROCESSES", 3)
        patch.setattr(curves, "MAX_STRANGE", 2)
        yield


def row(line: int, value: float | str, rank: int = 0, source: str = "log") -> CurveRow:
    process = CurveProcess(rank=rank, source=source)
    if isinstance(value, str):
        return CurveRow(source, line, float(line), -1.0, -1.0, process, (), (("loss", value),))
    return CurveRow(source, line, float(line), -1.0, -1.0, process, (("loss", value),))


def mark(one: CurveRow) -> int:
    return mark_of(seed_of(one.source), one.line)


def table(lines: Lines) -> CurveTable:
    found = CurveTable()
    for kind, one, advances in lines:
        found.add(kind, mark(one), one, advances)
    return found


def merged(*parts: CurveTable) -> CurveTable:
    total = CurveTable()
    for part in parts:
        total.absorb(part)
    return total


def view(found: CurveTable) -> object:
    return found.sampled(), found.ends, found.strange, {kind: s.share() for kind, s in found.samples.items()}


LINES = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.builds(
            row,
            st.integers(1, 60),
            st.floats(-5, 5) | st.sampled_from(curves.STRANGE),
            st.integers(-1, 6),
            st.sampled_from(["a", "b"]),
        ),
        st.booleans(),
    ),
    max_size=40,
)


@given(LINES, LINES, LINES)
def test_merge_is_associative_and_commutative(a: Lines, b: Lines, c: Lines) -> None:
    with small():
        left = merged(merged(table(a), table(b)), table(c))
        right = merged(table(a), merged(table(b), table(c)))
        assert view(left) == view(right)
        assert view(merged(table(a), table(b))) == view(merged(table(b), table(a)))


@given(LINES, st.lists(st.integers(0, 40), max_size=4))
def test_any_cut_of_a_log_gives_the_same_rows(whole: Lines, cuts: list[int]) -> None:
    with small():
        places = [0, *sorted(cuts), len(whole)]
        parts = [table(whole[a:b]) for a, b in pairwise(places)]
        assert view(merged(*parts)) == view(table(whole))


@given(LINES)
def test_what_is_kept_follows_from_the_lines_alone(lines: Lines) -> None:
    with small():
        found = table(lines)
        for kind in {kind for kind, _, _ in lines}:
            marks = sorted((mark(one), one) for own, one, _ in lines if own == kind)
            assert [(m, r) for m, own, r in found.sampled() if own == kind] == marks[:6]
            advancing = [one for own, one, advances in lines if own == kind and advances]
            processes = sorted({one.process for one in advancing})[:3]
            kept = found.ends.get(kind, {})
            assert sorted(kept) == processes
            for process in processes:
                own = sorted(one for one in advancing if one.process == process)
                assert (kept[process].first, kept[process].last) == (own[0], own[-1])
        strange = sorted(one for _, one, _ in lines if one.strange)
        assert found.strange.get("loss", ([], 0)) == (strange[:2], len(strange))


def test_a_line_that_is_not_wanted_would_not_be_kept() -> None:
    with small():
        found = CurveTable()
        skipped: list[CurveRow] = []
        for line in range(1, 500):
            one = row(line, 1.0)
            if found.wants(1, mark(one)):
                found.add(1, mark(one), one, advances=False)
            else:
                skipped.append(one)
        assert len(skipped) > 400
        everything = table([(1, row(line, 1.0), False) for line in range(1, 500)])
        assert found.sampled() == everything.sampled()


def test_a_process_that_is_lacked_would_be_kept() -> None:
    with small():
        found = table([(1, row(rank, 1.0, rank), True) for rank in (5, 6, 7)])
        assert [found.lacks(1, CurveProcess(rank=rank, source="log")) for rank in (4, 6, 8)] == [True, False, False]
        assert found.lacks(2, CurveProcess(rank=8, source="log"))


def test_space_is_bounded_and_the_sample_is_spread_over_the_log() -> None:
    found = table([(1, row(line, 1 / line, rank=line % 500), True) for line in range(1, 60_001)])
    sample = [one for _, _, one in found.sampled()]
    assert len(sample) == curves.SAMPLE
    assert len(found.ends[1]) == curves.MAX_PROCESSES
    assert len(pickle.dumps(found)) < 500_000
    assert 0.9 < found.samples[1].share() / (curves.SAMPLE / 60_000) < 1.1
    tenths = [sum((one.line - 1) // 6000 == tenth for one in sample) for tenth in range(10)]
    assert min(tenths) > curves.SAMPLE / 10 / 2
    first = sorted(one.line for one in sample[:50])
    assert first[0] < 12_000 and first[-1] > 48_000  # the first few marks are spread, too


def test_a_short_log_is_kept_whole() -> None:
    found = table([(1, row(line, 1.0), False) for line in range(1, 101)])
    assert [one.line for one in sorted(one for _, _, one in found.sampled())] == list(range(1, 101))
    assert found.samples[1].share() == 1.0


def test_observations_take_the_rows_along() -> None:
    one, two = Observations(), Observations()
    one.curves.absorb(table([(1, row(1, 1.0), True)]))
    two.curves.absorb(table([(1, row(2, 2.0), True)]))
    both = one.merge(two)
    assert [found.line for found in both.curves.outermost()] == [1, 2]
    assert len(one.curves.sampled()) == 1  # merging leaves its parts alone
