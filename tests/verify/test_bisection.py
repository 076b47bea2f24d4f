"""Nobody stands out: the session halves the hosts until it has found the one, and tries without it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.engine import load
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import plan
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.collective_run import RankTrace, RunFinding, RunResult
from nccl_triage.verify.conduct import Bisection, bisect, carry_out
from nccl_triage.verify.judge import Trial
from nccl_triage.verify.means import Means
from nccl_triage.verify.plan import PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause
from nccl_triage.verify.reachability import ReachabilityMatrix
from nccl_triage.verify.trials import Session

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

    def narrow(self, limit: int = LIMIT) -> Bisection[int]:
        found = bisect(self.units, self.fails, limit=limit)
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

    assert bisect(names, fails).units == ("gpu-b",)
    assert all(list(group) == [name for name in names if name in group] for group in asked)


HOSTS = tuple(f"node{index}" for index in range(6))


class Imagined(Session):
    """A session whose runs fail when a rule about their hosts says so; everything else is the real one."""

    def __init__(self, rule) -> None:
        question = Question(
            (SuspectedCause("network-link-fault", "supported", 0.7),), op="ALLREDUCE", numel=1024, world=6, hosts=HOSTS
        )
        places = tuple(HostPlace(name, ("ssh", name)) for name in HOSTS)
        rules = load.load(())
        made = plan.build(question, rules.causes, Means.alike(places, torch="2.13.0"), PlanOptions(backend="gloo"))
        super().__init__(Cluster(_Nowhere(places)), made, rules, Path())
        self.rule = rule
        self.runs = []
        entry = {
            "name": "eth0",
            "up": True,
            "loopback": False,
            "default": True,
            "netmask": "255.255.255.0",
            "mtu": 1500,
        }
        self.cluster.facts = [
            {"interfaces": [{**entry, "address": f"10.0.0.{index + 1}"}], "own_addresses": [f"10.0.0.{index + 1}"]}
            for index in range(6)
        ]
        self.report.matrix = ReachabilityMatrix()

    def prepare(self, backend, probes):
        pass

    def trial(self, run, index, planned):
        hosts = tuple(HOSTS[place] for place in run.places)
        self.runs.append(hosts)
        bad = self.rule(hosts)
        traces = {rank: RankTrace(rank, slot, times={"imported": 0.1}) for rank, slot in enumerate(run.slots)}
        result = RunResult(run, "error" if bad else "passed", "warm" if bad else "end", 1.0, traces)
        finding = RunFinding("network-link-fault", "collective-failed", {"en": "", "zh": ""}) if bad else None
        return Trial(result, finding)


class _Nowhere:
    def __init__(self, places) -> None:
        self.places = places


@pytest.mark.parametrize("guilty", HOSTS)
def test_one_host_is_found_and_the_rest_passes_without_it(guilty):
    session = Imagined(lambda hosts: guilty in hosts and len(hosts) > 1)
    (outcome,) = carry_out(session).outcomes
    assert outcome.narrowed["kind"] == "one"
    assert outcome.narrowed["hosts"] == [guilty]
    assert outcome.row.outcome == "confirmed"
    assert set(HOSTS) - {guilty} in [set(hosts) for hosts in session.runs]


def test_a_pair_that_fails_only_together_is_found():
    session = Imagined(lambda hosts: {"node1", "node4"} <= set(hosts))
    (outcome,) = carry_out(session).outcomes
    assert outcome.narrowed["kind"] == "pair"
    assert set(outcome.narrowed["hosts"]) == {"node1", "node4"}


def test_when_every_group_fails_nobody_is_blamed_alone():
    session = Imagined(lambda hosts: len(hosts) > 1)
    (outcome,) = carry_out(session).outcomes
    assert outcome.narrowed["kind"] != "one"
