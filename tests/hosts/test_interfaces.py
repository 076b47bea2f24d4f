"""Which interfaces of a host NCCL and Gloo take."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.hosts.interfaces import chosen, for_gloo, gloo_choice, nccl_choice, same_network
from tests.verify.host_facts import facts, interface

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
