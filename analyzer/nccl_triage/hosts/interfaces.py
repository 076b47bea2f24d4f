"""The interfaces of a host that a backend chooses.

NCCL: NCCL_SOCKET_IFNAME is a list of prefixes, ``=`` asks for whole names, ``^`` excludes; without it NCCL takes
interfaces named ib* first, then one in the network of NCCL_COMM_ID, then any but lo, docker* and virbr*, then docker*,
then lo, then virbr* (src/misc/socket.cc, ncclFindInterfaces; older releases took virbr* with the others).
Gloo: GLOO_SOCKET_IFNAME is one name (or a list); without it the address of the host's own name, where that can be
bound, else the loopback (torch ProcessGroupGloo.cpp, createDefaultDevice).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

#: What the names of bridges begin with, which NCCL takes after everything else.
BRIDGES = ("docker", "virbr")
Interface = Mapping[str, Any]


def nccl_choice(interfaces: Sequence[Interface], wish: str | None) -> list[Interface]:
    """Return the interfaces that NCCL would use, in its order; empty when it finds none."""
    return nccl_pick(interfaces, wish)[0]


def nccl_pick(
    interfaces: Sequence[Interface], wish: str | None, root: str | None = None
) -> tuple[list[Interface], str]:
    """Return the interfaces that NCCL would use and which of its rules chose them.

    ``root`` is the address of NCCL_COMM_ID. The rules: wished, infiniband, subnet, plain, docker, loopback, bridge, none.
    """
    usable = [entry for entry in interfaces if entry["up"]]
    if wish:
        chosen = [entry for entry in usable if _wished(entry["name"], wish)]
        return chosen, "wished" if chosen else "none"
    docker, bridges = ([entry for entry in usable if entry["name"].startswith(kind)] for kind in BRIDGES)
    put_off = [*docker, *bridges]
    for rule, found in (
        ("infiniband", [entry for entry in usable if entry["name"].startswith("ib")]),
        ("subnet", [entry for entry in usable if root and _holds(entry, root)][:1]),
        ("plain", [entry for entry in usable if not entry["loopback"] and entry not in put_off]),
        ("docker", docker),
        ("loopback", [entry for entry in usable if entry["loopback"]]),
        ("bridge", bridges),
    ):
        if found:
            return found, rule
    return [], "none"


def _holds(entry: Interface, address: str) -> bool:
    try:
        return ipaddress.IPv4Address(address) in _network(entry)
    except ValueError:  # a name, or an address of another family
        return False


def _wished(name: str, wish: str) -> bool:
    excluded, exact = wish.startswith("^"), wish.lstrip("^").startswith("=")
    names = [part for part in wish.lstrip("^=").split(",") if part]
    hit = any(name == part if exact else name.startswith(part) for part in names)
    return hit != excluded


def gloo_choice(interfaces: Sequence[Interface], wish: str | None, own_addresses: Sequence[str]) -> list[Interface]:
    """Return the interfaces that Gloo would use."""
    if wish:
        names = wish.split(",")
        return [entry for name in names for entry in interfaces if entry["name"] == name]
    by_name = [entry for entry in interfaces if entry["address"] in own_addresses]
    return by_name[:1] or [entry for entry in interfaces if entry["loopback"]]


def chosen(facts: Mapping[str, Any], backend: str, env: Mapping[str, str]) -> list[Interface]:
    """Return the interfaces that a backend takes on a host with these variables."""
    if backend == "nccl":
        return nccl_choice(facts["interfaces"], env.get("NCCL_SOCKET_IFNAME"))
    return gloo_choice(facts["interfaces"], env.get("GLOO_SOCKET_IFNAME"), facts["own_addresses"])


def for_gloo(facts: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which Gloo takes the interface that NCCL would take with the job's variables."""
    if "GLOO_SOCKET_IFNAME" in env and "NCCL_SOCKET_IFNAME" not in env:
        return {}
    wish = env.get("NCCL_SOCKET_IFNAME")
    found = nccl_choice(facts["interfaces"], wish)
    if found:
        return {"GLOO_SOCKET_IFNAME": str(found[0]["name"])}
    # NCCL would find none: Gloo is to fail in the same way.
    return {"GLOO_SOCKET_IFNAME": wish.lstrip("^=").split(",")[0]} if wish else {}


def same_network(one: Interface, two: Interface) -> bool:
    """Tell whether two interfaces lie in one network by their own netmasks."""
    return _network(one) == _network(two)


def _network(entry: Interface) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network((entry["address"], entry["netmask"]), strict=False)
