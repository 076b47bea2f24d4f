"""Whether an experiment took place in the world of the failure: on the job's hosts, with its GPU and its variables.

Elsewhere its runs tell about the machines at hand and nothing about the failure, whatever they show.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nccl_triage.verify.collective_run import HostPlace
from nccl_triage.verify.question import Question

HostMatch = Literal["own", "other", "unknown"]
GpuMatch = Literal["accused", "other", "any"]
VariableMatch = Literal["same", "left-out"]

#: Interfaces that have the same addresses on many hosts: their addresses identify none.
_BRIDGES = ("docker", "virbr", "br-", "cni", "flannel", "veth", "podman", "lxc")
#: Names that many hosts have.
_ANYWHERE = frozenset({"localhost", "ip6-localhost", "unknown", ""})


@dataclass(frozen=True, slots=True)
class SameWorld:
    """How the world of an experiment compares with that of the failure.

    ``hosts``: all are the job's, some are not, or the log names none. ``gpu``: the accused one took part, it did not, or
    none is accused. ``variables``: all that can change the outcome were repeated, or some were left out.
    """

    hosts: HostMatch = "own"
    gpu: GpuMatch = "any"
    variables: VariableMatch = "same"


def short_name(name: str) -> str:
    """Return a host's name without domain, number of a doubled name and case."""
    return name.split("#")[0].split(".")[0].casefold()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same_name(one: str, two: str) -> bool:
    if _is_address(one) or _is_address(two):
        return one == two
    return short_name(one) == short_name(two) and short_name(one) not in _ANYWHERE


def _telling(address: str) -> bool:
    """Tell whether an address can identify a host."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast)


def addresses_of(facts: Mapping[str, Any]) -> frozenset[str]:
    """Return the addresses by which a host's agent can be told from other hosts."""
    interfaces = [
        str(entry["address"])
        for entry in facts.get("interfaces") or ()
        if not entry["loopback"] and not str(entry["name"]).startswith(_BRIDGES)
    ]
    return frozenset(filter(_telling, interfaces))


def name_in_log(question: Question, place: HostPlace, facts: Mapping[str, Any] | None = None) -> str | None:
    """Return what the log calls a host, by its names or its addresses; None when it does not name it.

    ``facts`` are those of the host's agent; without them the given name and address decide.
    """
    names = [place.name, *([str(facts.get("host") or "")] if facts else [])]
    for host in question.hosts:
        if any(_same_name(host, name) for name in names):
            return host
    own = {place.address, place.name} | (addresses_of(facts) if facts else set())
    own = {address for address in own if address is not None and _telling(address)}
    for host in question.hosts:
        if own & {host, *question.addresses.get(host, ())}:
            return host
    return None


def names_in_log(
    question: Question, places: Sequence[HostPlace], facts: Sequence[Mapping[str, Any]] = ()
) -> tuple[str, ...]:
    """Return what the log calls each host, its own name where the log does not name it."""
    told = [*facts, *([None] * (len(places) - len(facts)))]
    return tuple(name_in_log(question, place, entry) or place.name for place, entry in zip(places, told, strict=True))


def match_hosts(
    question: Question, places: Sequence[HostPlace], facts: Sequence[Mapping[str, Any]], asserted: bool = False
) -> HostMatch:
    """Return whether hosts are the job's; ``asserted`` when the person at the keyboard said that they are."""
    if asserted:
        return "own"
    if not question.hosts:
        return "unknown"
    told = zip(places, facts, strict=True)
    return "own" if all(name_in_log(question, place, entry) is not None for place, entry in told) else "other"


def compared(
    question: Question, places: Sequence[HostPlace], facts: Sequence[Mapping[str, Any]], kind: str, asserted: bool
) -> SameWorld:
    """Return how the hosts and variables of an experiment of a kind compare with the failure's."""
    return SameWorld(match_hosts(question, places, facts, asserted), "any", match_variables(kind, ()))


#: Kinds of experiments whose outcome no variable of NCCL changes.
_WITHOUT_VARIABLES = frozenset({"store", "versions"})


def match_variables(kind: str, left_out: Iterable[str]) -> VariableMatch:
    """Return whether the variables that can change the outcome of a kind of experiment were repeated."""
    return "left-out" if kind not in _WITHOUT_VARIABLES and any(left_out) else "same"
