"""The matrix of who reaches whom."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.verify import reachability
from nccl_triage.verify.reachability import ALL_PAIRS, BROKEN, DEGRADED, ReachabilityMatrix, measure, pairs, ports_of
from tests.verify.host_facts import matrix, path


@settings(max_examples=40, deadline=None)
@given(st.integers(2, ALL_PAIRS))
def test_every_pair_of_few_hosts_is_probed_both_ways(count: int) -> None:
    assert sorted(pairs(count)) == [(a, b) for a in range(count) for b in range(count) if a != b]


@settings(max_examples=40, deadline=None)
@given(st.integers(ALL_PAIRS + 1, 500))
def test_many_hosts_are_each_probed_by_several_once(count: int) -> None:
    found = pairs(count)
    assert len(set(found)) == len(found) == 8 * count
    assert all(a != b for a, b in found)
    assert set(Counter(target for _, target in found).values()) == {8}
    assert {(b, a) for a, b in found} == set(found)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 500))
def test_the_probes_of_one_host_are_bounded(count: int) -> None:
    most = max(Counter(origin for origin, _ in pairs(count)).values())
    assert most * ports_of(count) <= 23 * 6


def test_an_address_counts_as_reached_when_all_others_reach_it() -> None:
    hosts = {"a": ["10.0.0.1", "10.1.0.1"], "b": ["10.0.0.2"], "c": ["10.0.0.3"]}
    found = matrix(
        hosts, lambda origin, _, address: "silent" if (origin, address) == ("c", "10.1.0.1") else "reachable"
    )
    assert found.reached_by_all("a", ["a", "b", "c"]) == ["10.0.0.1"]
    assert found.reached_by_all("a", ["a", "b"]) == ["10.0.0.1", "10.1.0.1"]
    assert found.reached_by_all("b", ["a", "b", "c"]) == ["10.0.0.2"]


def test_one_port_that_fails_makes_an_address_unusable() -> None:
    ways = [path("b", "a", "10.0.0.1", port=1), path("b", "a", "10.0.0.1", "refused", port=2)]
    assert ReachabilityMatrix(ways).reached_by_all("a", ["a", "b"]) == []


@pytest.mark.parametrize("state", sorted(DEGRADED))
def test_a_poor_path_can_be_used(state: str) -> None:
    assert ReachabilityMatrix([path("b", "a", "10.0.0.1", state)]).reached_by_all("a", ["a", "b"]) == ["10.0.0.1"]


@pytest.mark.parametrize("state", sorted(BROKEN))
def test_a_broken_path_can_not(state: str) -> None:
    assert ReachabilityMatrix([path("b", "a", "10.0.0.1", state)]).reached_by_all("a", ["a", "b"]) == []


def test_hosts_that_were_not_asked_have_no_say() -> None:
    """More hosts than are probed in pairs: those that did not probe a host cannot miss its address."""
    names = [f"n{i:03}" for i in range(ALL_PAIRS + 8)]
    found = ReachabilityMatrix([path(names[a], names[b], f"10.0.0.{b}") for a, b in pairs(len(names))])
    for index, name in enumerate(names):
        assert found.reached_by_all(name, names) == [f"10.0.0.{index}"]
    assert found.reached_by_all(names[0], [names[0], names[3]]) == [], "nobody who could know"


def test_a_host_that_did_not_answer_is_no_witness() -> None:
    found = matrix({"a": ["10.0.0.1"], "b": ["10.0.0.2"]})
    assert found.reached_by_all("a", ["a", "b", "lost"]) == ["10.0.0.1"]
    assert found.reached_by_all("lost", ["a", "b", "lost"]) == []


class Answers:
    """A cluster of which only questions are known."""

    def __init__(self, names: list[str], answers: dict[str, dict[int, dict[str, Any]]]) -> None:
        self.places, self.answers = names, answers
        self.asked: list[tuple[str, Any]] = []

    def name(self, place: int) -> str:
        return self.places[place]

    def ask(self, what: str, places: Any, timeout: float, per_place: Any = None) -> dict[int, dict[str, Any]]:
        self.asked.append((what, per_place))
        return self.answers.get(what, {})


def where(address: str, *also: int) -> dict[str, Any]:
    return {
        "where": [{"interface": "eth0", "address": address, "mtu": 1500, "ports": [4000, 4001], "also": list(also)}]
    }


def result(host: str, address: str, state: str = "reachable") -> dict[str, Any]:
    return {
        "to_host": host,
        "to_interface": "eth0",
        "address": address,
        "port": 4000,
        "state": state,
        "connect_s": 0.001,
    }


def test_measuring_asks_each_host_for_every_other() -> None:
    cluster = Answers(
        ["a", "b"],
        {
            "listen": {0: where("10.0.0.1", 29500), 1: where("10.0.0.2")},
            "probe": {0: {"results": [result("b", "10.0.0.2")]}},
        },
    )
    found = measure(cluster, also=29500)  # type: ignore[arg-type]
    options = dict(cluster.asked)["probe"]
    assert [target["address"] for target in options[0]["targets"]] == ["10.0.0.2"]
    assert [(target["ports"], target.get("kind")) for target in options[1]["targets"]] == [
        ([4000, 4001], None), ([29500], "port of the log"),
    ]  # fmt: skip
    assert [(way.origin, way.target, way.numbers) for way in found.paths] == [("a", "b", {"connect_s": 0.001})]
    assert [what for what, _ in cluster.asked][-1] == "end_listen", "nothing keeps listening"


def test_a_host_that_does_not_listen_is_no_target() -> None:
    cluster = Answers(["a", "b"], {"listen": {0: where("10.0.0.1")}, "probe": {1: {"results": []}}})
    assert measure(cluster).paths == []  # type: ignore[arg-type]
    assert dict(cluster.asked)["probe"][0]["targets"] == []


def test_a_host_that_gets_requests_and_is_never_heard_is_told() -> None:
    cluster = Answers(
        ["a", "b"],
        {
            "listen": {0: where("10.0.0.1"), 1: where("10.0.0.2")},
            "probe": {
                0: {"results": [result("b", "10.0.0.2", "silent")]},
                1: {"results": [result("a", "10.0.0.1", "silent")]},
            },
            "end_listen": {0: {"half_open": ["10.0.0.2", "10.7.7.7"]}, 1: {"half_open": []}},
        },
    )
    there, back = measure(cluster).paths  # type: ignore[arg-type]
    assert "answer_lost" not in there.numbers and back.numbers["answer_lost"] is True


def test_one_host_is_not_probed() -> None:
    cluster = Answers(["a"], {})
    assert measure(cluster).paths == [] and cluster.asked == []  # type: ignore[arg-type]


def test_a_path_is_told_with_its_numbers() -> None:
    told = path("a", "b", "10.0.0.2", "lossy", numbers={"sent_again": 9}).to_dict()
    assert (told["from"], told["to"], told["state"], told["sent_again"]) == ("a", "b", "lossy", 9)


def test_states_are_known_one_way_or_the_other() -> None:
    from nccl_triage.verify.worker import reach

    assert not BROKEN & DEGRADED
    assert {*reach._BY_ERRNO.values(), "silent", "no-data", "large-packets-lost", "failed"} == set(BROKEN)
    assert reachability.ALL_PAIRS < 25
