"""What interfaces and paths show to be wrong, and in which direction."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.verify.collective_run import RunFinding
from nccl_triage.verify.network_findings import ONE_WAY, interface_findings, path_findings
from nccl_triage.verify.reachability import BROKEN, DEGRADED, ReachabilityMatrix
from tests.verify.host_facts import facts, interface, matrix, path

A = facts("a", interface("eth0", "10.0.0.1"), interface("docker0", "172.17.0.1"), own=["10.0.0.1"])
B = facts("b", interface("eth0", "10.0.0.2"), interface("docker0", "172.17.0.1"), own=["10.0.0.2"])
FAR = facts("c", interface("eth0", "10.9.0.3"), own=["10.9.0.3"])
NCCL_ON = "NCCL_SOCKET_IFNAME"


def kinds(found: list[RunFinding]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(entry.cause, entry.kind, entry.hosts) for entry in found]


def test_healthy_hosts_show_nothing() -> None:
    assert interface_findings(["a", "b"], [A, B], "nccl", {}) == []
    assert interface_findings(["a"], [facts("a")], "nccl", {}) == [], "one host may talk to itself"


def test_a_bridge_with_the_same_address_on_both_hosts() -> None:
    found = interface_findings(["a", "b"], [A, B], "nccl", {NCCL_ON: "docker0"})
    assert kinds(found) == [("network-wrong-interface", "same-address", ("a", "b"))]
    assert all("172.17.0.1" in found[0].says[language] for language in ("en", "zh"))


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_name_that_a_host_does_not_have(backend: str) -> None:
    variable = NCCL_ON if backend == "nccl" else "GLOO_SOCKET_IFNAME"
    found = interface_findings(["a", "c"], [A, FAR], backend, {variable: "docker0"})
    assert kinds(found) == [("network-wrong-interface", "no-interface", ("c",))]
    assert "docker0" in found[0].says["en"] and "eth0" in found[0].says["en"]


def test_an_interface_that_is_down() -> None:
    off = facts("b", interface("eth0", "10.0.0.2", up=False))
    for backend, env in (("gloo", {"GLOO_SOCKET_IFNAME": "eth0"}), ("nccl", {NCCL_ON: "eth0"}), ("nccl", {})):
        found = interface_findings(["a", "b"], [A, off], backend, env)
        assert kinds(found) == [("network-link-fault", "link-down", ("b",))], "the right one, without a link"
        assert "eth0 (10.0.0.2) of b is down" in found[0].says["en"] and "断开" in found[0].says["zh"]


def test_an_interface_that_is_down_beside_the_one_that_is_taken() -> None:
    spare = facts("b", interface("eth0", "10.0.0.2"), interface("eth1", "10.1.0.2", up=False))
    bridge = facts("b", interface("docker0", "172.17.0.1", up=False), own=["127.0.1.1"])
    assert interface_findings(["a", "b"], [A, spare], "nccl", {}) == []
    assert [entry.kind for entry in interface_findings(["a", "b"], [A, bridge], "nccl", {})] == ["loopback"]


def test_the_loopback_between_hosts() -> None:
    named = facts("b", interface("eth0", "10.0.0.2"), own=["127.0.1.1"])
    found = interface_findings(["a", "b"], [A, named], "gloo", {})
    assert kinds(found) == [("network-wrong-interface", "loopback", ("b",))]


def findings(state: str, second: Any = B, **numbers: Any) -> list[RunFinding]:
    target = second["interfaces"][1]["address"]
    way = {"state": state, "numbers": numbers}
    ways = ReachabilityMatrix([path("a", second["host"], target, **way), path(second["host"], "a", "10.0.0.1", **way)])
    return path_findings(["a", second["host"]], [A, second], ways, "nccl", {})


@pytest.mark.parametrize(
    ("state", "error", "second", "cause"),
    [
        ("no-route", "ENETUNREACH", FAR, "network-unreachable-subnet"),
        ("no-route", "EHOSTUNREACH", FAR, "network-unreachable-subnet"),
        ("no-route", "EHOSTUNREACH", B, "network-firewall-port"),
        ("silent", "TimeoutError", FAR, "network-unreachable-subnet"),
        ("silent", "TimeoutError", B, "network-firewall-port"),
        ("refused", "ECONNREFUSED", B, "network-firewall-port"),
        ("no-route", "ENETUNREACH", B, "network-unreachable-subnet"),
        ("no-route", "EINVAL", B, "network-unreachable-subnet"),
        ("prohibited", "EACCES", B, "network-unreachable-subnet"),
        ("prohibited", "EPERM", B, "network-firewall-port"),
        ("failed", "EADDRNOTAVAIL", B, ""),
        ("large-packets-lost", "TimeoutError", B, "network-link-fault"),
        ("no-data", "TimeoutError", B, "network-link-fault"),
        ("lossy", None, B, "network-link-fault"),
        ("delayed", None, B, "network-link-fault"),
    ],
)
def test_what_the_state_of_a_path_speaks_for(state: str, error: str | None, second: Any, cause: str) -> None:
    found = findings(state, second, **({"error": error} if error else {}))
    assert kinds(found) == [(cause, f"path-{state}", ("a", second["host"]))]
    assert "a" in found[0].says["en"] and state in found[0].says["zh"]


@pytest.mark.parametrize("state", sorted(BROKEN | DEGRADED))
def test_every_state_is_some_finding(state: str) -> None:
    assert len(findings(state)) == 1


def test_only_the_path_that_the_backend_takes_counts() -> None:
    ways = matrix(
        {"a": ["10.0.0.1", "172.17.0.1"], "b": ["10.0.0.2", "172.17.0.1"]},
        lambda *way: "silent" if way[2].startswith("172") else "reachable",
    )
    assert path_findings(["a", "b"], [A, B], ways, "nccl", {}) == []


def test_a_broken_path_comes_before_a_poor_one_and_a_pair_is_named_once() -> None:
    c = facts("c", interface("eth0", "10.0.0.3"))
    ways = matrix(
        {"a": ["10.0.0.1"], "b": ["10.0.0.2"], "c": ["10.0.0.3"]},
        lambda origin, target, _: (
            "lossy" if {origin, target} == {"a", "b"} else "refused" if {origin, target} == {"b", "c"} else "reachable"
        ),
    )
    found = path_findings(["a", "b", "c"], [A, B, c], ways, "nccl", {})
    assert [(entry.kind, entry.hosts) for entry in found] == [("path-refused", ("b", "c")), ("path-lossy", ("a", "b"))]


def test_one_direction_is_enough() -> None:
    ways = ReachabilityMatrix([path("a", "b", "10.0.0.2"), path("b", "a", "10.0.0.1", "large-packets-lost")])
    assert kinds(path_findings(["a", "b"], [A, B], ways, "nccl", {})) == [
        ("network-link-fault", "path-large-packets-lost", ("a", "b"))
    ]


@pytest.mark.parametrize("state", ["silent", "refused", "prohibited"])
def test_a_path_that_only_one_host_can_open_is_told_with_its_direction(state: str) -> None:
    ways = ReachabilityMatrix([path("a", "b", "10.0.0.2"), path("b", "a", "10.0.0.1", state)])
    (found,) = path_findings(["a", "b"], [A, B], ways, "gloo", {"GLOO_SOCKET_IFNAME": "eth0"})
    assert kinds([found]) == [("network-firewall-port", ONE_WAY, ("a", "b"))]
    assert found.says["en"].startswith("from b to 10.0.0.1:4000 (eth0 of a): " + state)
    assert "from a to b every port answers" in found.says["en"] and "从 a 到 b" in found.says["zh"]


def test_another_interface_can_open_what_this_one_cannot() -> None:
    back = path("b", "a", "10.0.0.1", by_interface="eth1")
    ways = ReachabilityMatrix([path("a", "b", "10.0.0.2", "silent"), back])
    assert kinds(path_findings(["a", "b"], [A, B], ways, "nccl", {})) == [
        ("network-firewall-port", "path-silent", ("a", "b"))
    ]


def test_packets_that_vanish_in_one_direction_are_told_with_it() -> None:
    """Nobody can connect, but one host gets the requests of the other."""
    lost = path("b", "a", "10.0.0.1", "silent", numbers={"answer_lost": True})
    ways = ReachabilityMatrix([path("a", "b", "10.0.0.2", "silent"), lost])
    (found,) = path_findings(["a", "b"], [A, B], ways, "nccl", {})
    assert found.kind == "path-silent"
    assert "packets from a to b are dropped" in found.says["en"] and "从 a 到 b 的数据包被丢弃" in found.says["zh"]


@pytest.mark.parametrize(
    ("out", "answers", "says"),
    [((6, 0), (0, 5), "from a to b about 5.5 %"), ((0, 5), (6, 0), "from b to a"), ((5, 5), (5, 5), "both ways")],
)
def test_losses_have_a_direction(out: tuple[int, int], answers: tuple[int, int], says: str) -> None:
    ways = ReachabilityMatrix(
        [
            path(one, two, address, "lossy", numbers={"messages": 100, "sent_again": lost, "answers_sent_again": back})
            for one, two, address, (lost, back) in (("a", "b", "10.0.0.2", out), ("b", "a", "10.0.0.1", answers))
        ]
    )
    (found,) = path_findings(["a", "b"], [A, B], ways, "nccl", {})
    assert says in found.says["en"] and "丢失" in found.says["zh"]


def test_each_host_has_its_own_variables() -> None:
    other = facts("b", interface("ens3", "10.0.0.2"), own=["127.0.1.1"])
    env = [{"GLOO_SOCKET_IFNAME": "eth0"}, {"GLOO_SOCKET_IFNAME": "ens3"}]
    assert interface_findings(["a", "b"], [A, other], "gloo", env) == []
    ways = ReachabilityMatrix([path("a", "b", "10.0.0.2", "lossy", interface="ens3"), path("b", "a", "10.0.0.1")])
    assert [entry.kind for entry in path_findings(["a", "b"], [A, other], ways, "gloo", env)] == ["path-lossy"]


def test_open_and_closed_ports_of_one_address_are_a_firewall() -> None:
    ways = ReachabilityMatrix([path("a", "c", "10.9.0.3", port=1), path("a", "c", "10.9.0.3", "silent", port=2)])
    found = path_findings(["a", "c"], [A, FAR], ways, "nccl", {})
    assert kinds(found) == [("network-firewall-port", "path-silent", ("a", "c"))]


def test_ports_of_another_address_say_nothing_of_this_one() -> None:
    one = facts("a", interface("eth0", "10.0.0.1"), interface("eth1", "10.5.0.1"))
    two = facts("b", interface("eth0", "10.0.0.2"), interface("eth1", "10.6.0.2"))
    ways = matrix(
        {"a": ["10.0.0.1", "10.5.0.1"], "b": ["10.0.0.2", "10.6.0.2"]},
        lambda *way: "reachable" if way[2].startswith("10.0.") else "silent",
    )
    assert kinds(path_findings(["a", "b"], [one, two], ways, "nccl", {})) == [
        ("network-unreachable-subnet", "path-silent", ("a", "b"))
    ], "both lie between networks, and a third network works"


#: Who keeps connections off a path -> the cause for which a silent way back speaks, too.
BY = {
    "own-route": "network-unreachable-subnet",
    "wrong-neighbour": "network-unreachable-subnet",
    "no-neighbour": "network-unreachable-subnet",
    "gateway": "network-unreachable-subnet",
    "filter": "network-firewall-port",
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("by", "cause"), BY.items())
def test_silence_one_way_is_judged_by_who_cannot_answer(by: str, cause: str, turned: bool) -> None:
    state = {"wrong-neighbour": "silent", "filter": "prohibited"}.get(by, "no-route")
    ends = [("a", "b", "10.0.0.2"), ("b", "a", "10.0.0.1")]
    told, silent = reversed(ends) if turned else ends
    ways = ReachabilityMatrix([path(*told, state, numbers={"said_by": by}), path(*silent, "silent")])
    found = path_findings(["a", "b"], [A, B], ways, "nccl", {})
    assert {entry.cause for entry in found} == {cause}
    assert found[0].kind == f"path-{state}" and found[0].says["en"].startswith(f"from {told[0]} to {told[2]}")
    answers = f"from {silent[0]} to {silent[2]}:4000 (eth0 of {silent[1]}): silent; {silent[1]} cannot send its answers"
    assert any(answers in entry.says["en"] for entry in found) == (by != "filter")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("state", "error"), [("no-route", "ENETUNREACH"), ("prohibited", "EACCES"), ("no-route", "EINVAL")]
)
def test_the_error_number_of_a_routing_table_is_enough(state: str, error: str, turned: bool) -> None:
    """A probe that does not tell who said it."""
    told = path("b", "a", "10.0.0.1", state, numbers={"error": error})
    silent = path("a", "b", "10.0.0.2", "silent")
    names = ["b", "a"] if turned else ["a", "b"]
    found = path_findings(names, [B, A] if turned else [A, B], ReachabilityMatrix([told, silent]), "nccl", {})
    assert [entry.kind for entry in found] == [f"path-{state}", "path-silent"]
    assert {entry.cause for entry in found} == {"network-unreachable-subnet"}


def test_different_troubles_of_two_directions_are_two_findings() -> None:
    ways = ReachabilityMatrix([path("a", "b", "10.0.0.2", "large-packets-lost"), path("b", "a", "10.0.0.1", "lossy")])
    found = path_findings(["a", "b"], [A, B], ways, "nccl", {})
    assert [entry.kind for entry in found] == ["path-large-packets-lost", "path-lossy"]
    late = ReachabilityMatrix([path("a", "b", "10.0.0.2", "delayed"), path("b", "a", "10.0.0.1", "lossy")])
    assert [entry.kind for entry in path_findings(["a", "b"], [A, B], late, "nccl", {})] == [
        "path-lossy",
        "path-delayed",
    ]


def test_the_same_trouble_both_ways_is_told_with_both() -> None:
    (found,) = findings("refused")
    assert "from a to 10.0.0.2" in found.says["en"] and "from b to 10.0.0.1" in found.says["en"]


def test_an_answer_of_the_target_itself_is_a_filter_where_the_other_way_is_open() -> None:
    """A reject with net-unreachable looks like a missing route, and packets go both ways."""
    ways = ReachabilityMatrix(
        [path("a", "b", "10.0.0.2", "no-route", numbers={"error": "ENETUNREACH"}), path("b", "a", "10.0.0.1")]
    )
    assert kinds(path_findings(["a", "b"], [A, B], ways, "nccl", {})) == [
        ("network-firewall-port", ONE_WAY, ("a", "b"))
    ]


def test_a_route_that_went_with_its_link_is_the_links() -> None:
    off = facts("b", interface("eth0", "10.0.0.2", up=False))
    ways = ReachabilityMatrix([path("b", "a", "10.0.0.1", "no-route", numbers={"said_by": "own-route"})])
    (found,) = path_findings(["a", "b"], [A, off], ways, "nccl", {})
    assert (found.cause, found.kind) == ("network-link-fault", "path-no-route")


def test_the_port_of_the_log_alone_is_closed() -> None:
    log = path("a", "b", "10.0.0.2", "silent", port=29500, kind="port of the log")
    ways = ReachabilityMatrix([path("a", "b", "10.0.0.2"), log, path("b", "a", "10.0.0.1")])
    (found,) = path_findings(["a", "b"], [A, B], ways, "nccl", {})
    assert (found.cause, found.kind) == ("network-firewall-port", "path-log-port") and "29500" in found.says["en"]


def test_no_matrix_no_findings() -> None:
    assert path_findings(["a", "b"], [A, B], ReachabilityMatrix(), "nccl", {}) == []
