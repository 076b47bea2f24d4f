"""Which host of the experiment a host of the log is: by its names, and by addresses that tell it from other hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from nccl_triage.verify.question import Question

#: Interfaces that have the same addresses on many hosts: their addresses identify none.
BRIDGES = ("docker", "virbr", "br-", "cni", "flannel", "veth", "podman", "lxc")
#: Names that many hosts have.
_ANYWHERE = frozenset({"localhost", "ip6-localhost", "unknown", ""})


def key(name: str) -> str | None:
    """Return an address as it is and a name without domain, number and case; None for what many hosts have."""
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        short = name.split("#")[0].split(".")[0].casefold()
        return None if short in _ANYWHERE else short
    if found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast:
        return None
    return str(found)


def keys(names: Iterable[str | None]) -> frozenset[str]:
    """Return the keys of names and addresses that can tell a host from others."""
    return frozenset(found for name in names if name and (found := key(name)) is not None)


def known_as(facts: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of a host by the facts of its agent: its name, and the addresses of its interfaces."""
    own = [facts.get("host")]
    own += [entry["address"] for entry in facts.get("interfaces") or () if not str(entry["name"]).startswith(BRIDGES)]
    return keys(name for name in own if isinstance(name, str))


def keys_in_log(host: str, question: Question) -> frozenset[str]:
    """Return the keys of a host of the log: its name and its addresses."""
    return keys((host, *question.addresses.get(host, ())))


def name_in_log(question: Question, own: Collection[str]) -> str | None:
    """Return what the log calls a host of these keys; None where it does not name it.

    A name comes before an address, which may belong to another host by now; one that the log ties to several hosts (that
    of a bridge on each) tells nothing.
    """
    by_name = next((host for host in question.hosts if key(host) in own), None)
    if by_name is not None:
        return by_name
    by_address = {host for host in question.hosts if not keys_in_log(host, question).isdisjoint(own)}
    return by_address.pop() if len(by_address) == 1 else None


def host_of(question: Question, *names: str) -> str | None:
    """Return what the log calls a host of these names and addresses; None where it does not name it."""
    return name_in_log(question, keys(names))
