"""What hosts' facts and the probe show before any collective runs."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.verify.model import RunFinding
from nccl_triage.verify.paths import (
    chosen,
    for_gloo,
    gloo_choice,
    interface_findings,
    nccl_choice,
    path_findings,
    same_network,
)
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
    found = interface_findings(["a", "b"], [A, off], "gloo", {"GLOO_SOCKET_IFNAME": "eth0"})
    assert kinds(found) == [("network-wrong-interface", "no-interface", ("b",))]


def test_the_loopback_between_hosts() -> None:
    named = facts("b", interface("eth0", "10.0.0.2"), own=["127.0.1.1"])
    found = interface_findings(["a", "b"], [A, named], "gloo", {})
    assert kinds(found) == [("network-wrong-interface", "loopback", ("b",))]


def findings(state: str, second: Any = B, **numbers: Any) -> list[RunFinding]:
    target = second["interfaces"][1]["address"]
    ways = ReachabilityMatrix(
        [path("a", second["host"], target, state, numbers=numbers), path(second["host"], "a", "10.0.0.1")]
    )
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
        ("prohibited", "EACCES", B, "network-firewall-port"),
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


def test_open_and_closed_ports_of_one_address_are_a_firewall() -> None:
    ways = ReachabilityMatrix([path("a", "c", "10.9.0.3", port=1), path("a", "c", "10.9.0.3", "silent", port=2)])
    found = path_findings(["a", "c"], [A, FAR], ways, "nccl", {})
    assert kinds(found) == [("network-firewall-port", "path-silent", ("a", "c"))]


def test_no_matrix_no_findings() -> None:
    assert path_findings(["a", "b"], [A, B], ReachabilityMatrix(), "nccl", {}) == []


LO = interface("lo", "127.0.0.1")
ETH0 = interface("eth0", "10.0.0.1")
ETH1 = interface("eth1", "10.1.0.1")
IB0 = interface("ib0", "10.2.0.1")
DOCKER = interface("docker0", "172.17.0.1")
VIRBR = interface("virbr0", "192.168.122.1")
DOWN = interface("eth2", "10.3.0.1", up=False)
ALL = [LO, ETH0, ETH1, DOCKER, IB0, DOWN]


def names(found: Any) -> list[str]:
    return [entry["name"] for entry in found]


@pytest.mark.parametrize(
    ("interfaces", "wanted"),
    [
        (ALL, ["ib0"]),
        ([LO, ETH0, ETH1, DOCKER], ["eth0", "eth1"]),
        ([LO, DOCKER], ["docker0"]),
        ([LO], ["lo"]),
        ([LO, VIRBR], ["lo"]),
        ([VIRBR], ["virbr0"]),
        ([LO, VIRBR, ETH0], ["eth0"]),
        ([LO, DOWN], ["lo"]),
        ([DOWN], []),
        ([], []),
    ],
)
def test_what_nccl_takes_unasked(interfaces: list[Any], wanted: list[str]) -> None:
    assert names(nccl_choice(interfaces, None)) == wanted
    assert names(nccl_choice(interfaces, "")) == wanted


@pytest.mark.parametrize(
    ("wish", "wanted"),
    [
        ("eth", ["eth0", "eth1"]),
        ("eth1", ["eth1"]),
        ("ib,eth1", ["eth1", "ib0"]),
        ("=eth", []),
        ("=eth0,ib0", ["eth0", "ib0"]),
        ("^docker,lo", ["eth0", "eth1", "ib0"]),
        ("^=eth0", ["lo", "eth1", "docker0", "ib0"]),
        ("lo", ["lo"]),
        ("bond", []),
        ("eth2", []),
        (",", []),
    ],
)
def test_what_nccl_takes_when_asked(wish: str, wanted: list[str]) -> None:
    assert names(nccl_choice(ALL, wish)) == wanted


def test_gloo_takes_the_address_of_the_hosts_name_or_the_loopback() -> None:
    assert names(gloo_choice(ALL, None, ["10.1.0.1"])) == ["eth1"]
    assert names(gloo_choice(ALL, None, ["127.0.1.1"])) == ["lo"]
    assert names(gloo_choice(ALL, "eth1,eth0", [])) == ["eth1", "eth0"]
    assert names(gloo_choice(ALL, "eth", [])) == []


def test_each_backend_reads_its_own_variable() -> None:
    host = facts("a", ETH0, ETH1, own=["10.0.0.1"])
    env = {"NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth0"}
    assert names(chosen(host, "nccl", env)) == ["eth1"]
    assert names(chosen(host, "gloo", env)) == ["eth0"]


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({}, "eth0"),
        ({"NCCL_SOCKET_IFNAME": "^eth0,docker,lo"}, "eth1"),
        ({"NCCL_SOCKET_IFNAME": "=docker0"}, "docker0"),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, None),
        ({"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth1"}, "eth1"),
        ({"NCCL_SOCKET_IFNAME": "bond0"}, "bond0"),
        ({"NCCL_SOCKET_IFNAME": "=bond0,bond1"}, "bond0"),
    ],
)
def test_gloo_stands_in_on_the_interface_that_nccl_would_take(env: dict[str, str], wanted: str | None) -> None:
    host = facts("a", ETH0, ETH1, DOCKER)
    found = for_gloo(host, env)
    assert found == ({} if wanted is None else {"GLOO_SOCKET_IFNAME": wanted})
    if wanted is not None and wanted != "bond0":
        assert names(chosen(host, "gloo", {**env, **found}))[0] == names(chosen(host, "nccl", env or {}))[0]


def test_a_host_without_any_interface_asks_for_none() -> None:
    assert for_gloo({"interfaces": []}, {}) == {}


def test_networks_by_their_netmasks() -> None:
    assert same_network(ETH0, interface("eth0", "10.0.0.200"))
    assert not same_network(ETH0, ETH1)
    assert not same_network(ETH0, interface("eth0", "10.0.0.2", netmask="255.0.0.0"))
