"""Facts of hosts and paths between them, as agents tell them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nccl_triage.verify.reachability import Path, ReachabilityMatrix


def interface(name: str, address: str, **changes: Any) -> dict[str, Any]:
    """Return one interface; lo is the loopback, eth0 has the default route."""
    loopback = name == "lo"
    return {
        "name": name,
        "address": address,
        "netmask": "255.0.0.0" if loopback else "255.255.255.0",
        "mtu": 65536 if loopback else 1500,
        "up": True,
        "loopback": loopback,
        "default": name == "eth0",
        "speed_mbit": None,
        **changes,
    }


def facts(name: str, *interfaces: dict[str, Any], own: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a host says of itself: lo and the interfaces given."""
    return {"host": name, "own_addresses": list(own), "interfaces": [interface("lo", "127.0.0.1"), *interfaces]}


def path(origin: str, target: str, address: str, state: str = "reachable", **changes: Any) -> Path:
    """Return one way from a host to an address of another."""
    return Path(
        **{
            "origin": origin,
            "target": target,
            "interface": "eth0",
            "address": address,
            "port": 4000,
            "state": state,
            **changes,
        }
    )


def matrix(
    hosts: Mapping[str, Sequence[str]], state: Callable[[str, str, str], str] = lambda *_: "reachable"
) -> ReachabilityMatrix:
    """Return the ways between all hosts (names to addresses); ``state`` is asked with origin, target and address."""
    return ReachabilityMatrix(
        [
            path(origin, target, address, state(origin, target, address))
            for origin in hosts
            for target in hosts
            if origin != target
            for address in hosts[target]
        ]
    )
