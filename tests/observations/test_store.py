"""Observations: bounded, and merged in any grouping alike."""

from __future__ import annotations

import copy
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_triage.observations import curves, links, store
from nccl_triage.observations.curves import CurveProcess, CurveRow, CurveTable, mark_of, seed_of
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.store import KEEP_FIRST, KEEP_LAST, Foresight, Observations, SourceInfo


def _event(source: str, line: int, signature: str, rank: int | None) -> Event:
    return Event(signature, source, line, f"{signature} {line}", Context(rank=rank), "cascade")


@st.composite
def _observations(draw: st.DrawFn) -> Observations:
    found = Observations()
    for _ in range(draw(st.integers(0, 25))):
        source = draw(st.sampled_from(["a", "b"]))
        found.add(
            _event(
                source, draw(st.integers(1, 50)), draw(st.sampled_from(["x", "y"])), draw(st.sampled_from([0, 1, None]))
            )
        )
    found.add_source(SourceInfo(draw(st.sampled_from(["a", "b", "c"])), bytes=draw(st.integers(0, 9)), lines=3))
    return found


def _view(found: Observations) -> tuple[object, ...]:
    return (
        sorted(found.counts.items()),
        sorted((e.signature, e.source, e.line, str(e.context.rank)) for e in found.all_events()),
        sorted((path, info.bytes, info.lines) for path, info in found.sources.items()),
    )


@given(_observations(), _observations(), _observations())
def test_merge_is_associative(a: Observations, b: Observations, c: Observations) -> None:
    assert sorted(a.merge(b).merge(c).counts.items()) == sorted(a.merge(b.merge(c)).counts.items())


@given(_observations(), _observations())
def test_merge_is_commutative_in_what_it_keeps(a: Observations, b: Observations) -> None:
    assert _view(a.merge(b)) == _view(b.merge(a))


def test_counts_are_exact_and_space_is_bounded() -> None:
    found = Observations()
    for line in range(1, 10_001):
        found.add(_event("log", line, "storm", line % 3))
    assert found.count("storm") == 10_000
    assert len(found.events("storm")) == 3 * (KEEP_FIRST + KEEP_LAST)
    assert found.events("storm")[0].line == 1
    assert found.events("storm")[-1].line == 10_000


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a few events reach."""
    monkeypatch.setattr(store, "MANY", 4)
    monkeypatch.setattr(store, "WIDE", 5)
    monkeypatch.setattr(store, "MAX_KEYS", 8)


def _many(source: str, ranks: range) -> Observations:
    found = Observations()
    for rank in ranks:
        for line in range(1, 21):
            found.add(_event(source, 100 * rank + line, "x", rank))
    return found


@pytest.mark.usefixtures("narrow")
def test_of_many_processes_the_first_and_the_last_of_each_stay_in_whatever_order_they_are_merged() -> None:
    parts = [_many("a", range(3)), _many("a", range(2, 5)), _many("b", range(7)), _many("c", range(1, 3))]
    views = set()
    for order in permutations(parts):
        left, right = Observations(), Observations()
        for part in order:
            left.absorb(copy.deepcopy(part))
        for part in order[:2]:
            right.absorb(copy.deepcopy(part))
        right = right.merge(copy.deepcopy(order[2]).merge(copy.deepcopy(order[3])))
        for found in (left, right):
            assert all(len(list(bucket.events())) == 2 for bucket in found.buckets["x"].values())
            assert len(found.buckets["x"]) == 8
            views.add(repr(_view(found)))
    assert len(views) == 1
    assert left.count("x") == 20 * (3 + 3 + 7 + 2)
    few = Observations().merge(_many("a", range(3)))
    assert len(few.events("x")) == 3 * (KEEP_FIRST + KEEP_LAST)


@pytest.mark.usefixtures("narrow")
def test_whether_processes_are_many_is_told_from_all_of_them() -> None:
    whole, parts = _many("a", range(5)), _many("a", range(3)).merge(_many("a", range(3, 5)))
    assert _view(whole) == _view(parts)
    for bucket in whole.buckets["x"].values():
        assert [event.line % 100 for event in bucket.events()] == [1, 2, 20]
    # One more, and there are too many for that.
    assert all(len(list(bucket.events())) == 2 for bucket in _many("a", range(6)).buckets["x"].values())


def test_repeats_reported_by_ray_count() -> None:
    found = Observations()
    event = _event("log", 1, "x", 0)
    event.count = 15
    found.add(event)
    assert found.count("x") == 15


def test_distinguishing_fields_are_kept_apart() -> None:
    found = Observations()
    for index in range(40):
        event = _event("log", index, "env", None)
        event.fields["name"] = f"NCCL_{index}"
        found.add(event, keep_by=("name",))
    assert len({event.fields["name"] for event in found.events("env")}) == 40


@pytest.mark.usefixtures("narrow")
def test_what_is_foreseen_is_what_would_have_been_kept_in_the_end() -> None:
    def source(name: str, foresight: store.Foresight | None) -> Observations:
        found = foresight.begin() if foresight is not None else Observations()
        for line in range(1, 21):
            found.add(_event(name, line, "often", 0))
            if name in ("a", "h"):
                found.add(_event(name, line, "seldom", 0))
        if foresight is not None:
            foresight.note(found)
        return found

    foresight = store.Foresight()
    plainly, foreseeing = Observations(), Observations()
    kept = []
    for name in "abcdefgh":
        plainly.absorb(source(name, None))
        found = source(name, foresight)
        kept.append(len(found.events("often")))
        foreseeing.absorb(found)
    assert _view(plainly) == _view(foreseeing)
    assert kept[0] == KEEP_FIRST + KEEP_LAST and kept[-1] < kept[0]
    assert len(foreseeing.events("seldom")) == 2 * (KEEP_FIRST + KEEP_LAST)


def test_a_sample_of_curves_does_not_depend_on_what_is_known_before() -> None:
    def source(number: int, limits: dict[int, int]) -> CurveTable:
        table, name = CurveTable(limits=limits), f"rank{number}.log"
        for line in range(1, 401):
            mark = mark_of(seed_of(name), line)
            if table.wants(1, mark):
                table.add(1, mark, CurveRow(name, line, line, -1.0, -1.0, CurveProcess(), (("loss", 1.0),)), False)
        return table

    foresight, whole, informed, read = Foresight(), CurveTable(), CurveTable(), 0
    for number in range(24):
        whole.absorb(source(number, {}))
        begun = foresight.begin()
        begun.curves.absorb(source(number, dict(begun.curves.limits)))
        read += len(begun.curves.samples[1].rows) if 1 in begun.curves.samples else 0
        foresight.note(begun)
        informed.absorb(begun.curves)
    assert informed.sampled() == whole.sampled()
    assert read < 24 * 400 / 3


def test_the_first_and_last_rows_of_curves_do_not_depend_on_what_is_known_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (curves, store):
        monkeypatch.setattr(module, "MAX_PROCESSES", 4)
    chance, foresight = Random(5), Foresight()
    whole, informed, left_out = CurveTable(), CurveTable(), 0
    for rank in chance.sample(range(40), 40):
        process, name = CurveProcess(rank), f"rank{rank}.log"
        rows = [CurveRow(name, line, line, -1.0, -1.0, process, (("loss", 1.0),)) for line in (1, 5, 9)]
        begun = foresight.begin()
        for row in rows:
            whole.add(1, 0, row, True)
            if begun.curves.follows(1, process):
                begun.curves.add(1, 0, row, True)
        left_out += not begun.curves.ends
        foresight.note(begun)
        informed.absorb(begun.curves)
    assert informed.ends == whole.ends
    assert left_out > 20


def test_enough_connections_of_all_sources_are_looked_for() -> None:
    foresight = Foresight()
    assert foresight.begin().links.wanted == links.ENOUGH
    found = Observations()
    for peer in range(links.ENOUGH - 10):
        fields = {"src": "0", "dst": str(peer), "transport": "P2P", "channel": "0"}
        link = links.read(fields, "gpu1", 7)
        assert link is not None
        found.links.add(link, "0", "log", peer)
    foresight.note(found)
    assert foresight.begin().links.wanted == 10
    foresight.note(found)
    assert foresight.begin().links.wanted == 0


@pytest.mark.usefixtures("narrow")
def test_beyond_the_bound_a_source_costs_what_it_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[tuple[object, ...]] = []
    mark = store._mark

    def noting(key: tuple[object, ...]) -> tuple[int, str]:
        marked.append(key)
        return mark(key)

    monkeypatch.setattr(store, "_mark", noting)
    found = Observations()
    for rank in range(200):
        found.absorb(_many(f"log{rank}", range(rank, rank + 1)))
    assert len(marked) == 200  # each process once
    kept = set(found.buckets["x"])
    assert kept == set(sorted(marked, key=mark)[:8])
    assert found.count("x") == 200 * 20
