"""How hosts reach each other: the reachability matrix, and the interfaces that a backend chooses.

NCCL: NCCL_SOCKET_IFNAME is a list of prefixes, ``=`` asks for whole names, ``^`` excludes; without it NCCL takes
interfaces named ib* first, then one in the network of NCCL_COMM_ID, then any but lo, docker* and virbr*, then docker*,
then lo, then virbr* (src/misc/socket.cc, ncclFindInterfaces; older releases took virbr* with the others).
Gloo: GLOO_SOCKET_IFNAME is one name (or a list); without it the address of the host's own name, where that can be
bound, else the loopback (torch ProcessGroupGloo.cpp, createDefaultDevice).
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.plan import PROBE_SECONDS

#: Hosts of which every pair is probed; more are probed as a ring with chords, which reaches every host from several.
ALL_PAIRS = 24
_CHORDS = (1, 2, 5, 11)
#: Seconds until a connection or an acknowledgement counts as lost.
PROBE_TIMEOUT = 4.0
#: States of a path that no collective can use, and of one that works badly.
BROKEN = frozenset({"no-route", "refused", "prohibited", "silent", "reset", "no-data", "large-packets-lost", "failed"})
DEGRADED = frozenset({"lossy", "delayed"})
#: What the names of bridges begin with, which NCCL takes after everything else.
BRIDGES = ("docker", "virbr")
#: What a probe measures of a path, where it gets that far.
_NUMBERS = (
    "connect_s",
    "round_trip_s",
    "messages",
    "connections",
    "lost_rounds",
    "sent_again",
    "answers_sent_again",
    "late_answers",
    "bytes_s",
    "bulk_sent_again",
    "answered",
    "error",
    "said_by",
)


@dataclass(frozen=True, slots=True)
class Path:
    """The result of a probe from one host to an address and port of another."""

    origin: str
    target: str
    interface: str
    address: str
    port: int
    state: str
    by_interface: str | None = None
    kind: str = "free port"
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether a collective could use the path."""
        return self.state not in BROKEN

    def to_dict(self) -> dict[str, Any]:
        """Return the path as the report has it."""
        return {
            "from": self.origin,
            "to": self.target,
            "to_interface": self.interface,
            "address": self.address,
            "port": self.port,
            "port_kind": self.kind,
            "by_interface": self.by_interface,
            "state": self.state,
            **self.numbers,
        }


@dataclass(slots=True)
class ReachabilityMatrix:
    """All paths that were probed."""

    paths: list[Path] = field(default_factory=list)

    def between(self, origin: str, target: str, addresses: Iterable[str] | None = None) -> list[Path]:
        """Return the paths from one host to another, to some addresses only when given."""
        wanted = None if addresses is None else set(addresses)
        return [
            path
            for path in self.paths
            if path.origin == origin and path.target == target and (wanted is None or path.address in wanted)
        ]

    def reached_by_all(self, target: str, hosts: Sequence[str]) -> list[str]:
        """Return the addresses of a host that all of the others reach that probed it, in the probe's order."""
        towards = [path for path in self.paths if path.target == target and path.origin in hosts]
        origins = {path.origin for path in towards}
        usable: dict[str, dict[str, bool]] = {}
        for path in towards:
            of_address = usable.setdefault(path.address, {})
            of_address[path.origin] = of_address.get(path.origin, True) and path.usable
        return [address for address, found in usable.items() if set(found) == origins and all(found.values())]


def pairs(count: int) -> list[tuple[int, int]]:
    """Return the (origin, target) indices to probe among ``count`` hosts."""
    if count <= ALL_PAIRS:
        return list(itertools.permutations(range(count), 2))
    return [(i, (i + step) % count) for i in range(count) for step in _CHORDS] + [
        ((i + step) % count, i) for i in range(count) for step in _CHORDS
    ]


def ports_of(count: int) -> int:
    """Return how many free ports of each address are probed: firewalls open some ports and not others."""
    return 20 if count <= 4 else 6 if count <= ALL_PAIRS else 2


def measure(cluster: Cluster, *, also: int | None = None, timeout: float = PROBE_TIMEOUT) -> ReachabilityMatrix:
    """Let every agent listen and probe its peers; ``also`` is a port beside the free ones: that of the job's store."""
    hosts = range(len(cluster.places))
    if len(hosts) < 2:
        return ReachabilityMatrix()
    wish = {"ports": ports_of(len(hosts)), "also": also or 0}
    listening = cluster.ask("listen", hosts, 10.0, dict.fromkeys(hosts, wish))
    targets: dict[int, list[dict[str, Any]]] = {place: [] for place in hosts}
    for origin, target in pairs(len(hosts)):
        for entry in listening.get(target, {}).get("where", []):
            where = {"host": cluster.name(target), **{key: entry.get(key) for key in ("interface", "address", "mac")}}
            targets[origin].append({**where, "ports": entry["ports"]})
            if entry["also"]:
                targets[origin].append({**where, "ports": entry["also"], "kind": "port of the log"})
    # A message may wait for its answer at each size, the test for losses takes as long again, and both may be repeated.
    answers = cluster.ask(
        "probe",
        hosts,
        PROBE_SECONDS + 8 * (timeout - PROBE_TIMEOUT),
        {place: {"targets": targets[place], "timeout": timeout} for place in hosts},
    )
    ended = cluster.ask("end_listen", hosts, 5.0)
    unanswered = {cluster.name(place): set(answer.get("half_open") or ()) for place, answer in ended.items()}
    own = {cluster.name(place): _addresses(listening.get(place, {})) for place in hosts}
    return ReachabilityMatrix(
        [
            _path(name, result, bool(own[name] & unanswered.get(result["to_host"], set())))
            for place, answer in sorted(answers.items())
            for name in (cluster.name(place),)
            for result in answer["results"]
        ]
    )


def _addresses(listening: Mapping[str, Any]) -> set[str]:
    return {entry["address"] for entry in listening.get("where", [])}


def _path(origin: str, result: Mapping[str, Any], asked: bool) -> Path:
    """Return one result of a probe, as the agent of ``origin`` tells it.

    ``asked``: the target got requests of ``origin`` for connections, and nothing that answers its own answer.
    """
    numbers = {name: result[name] for name in _NUMBERS if name in result}
    if asked and result["state"] == "silent":
        numbers["answer_lost"] = True
    return Path(
        origin=origin,
        target=result["to_host"],
        interface=result["to_interface"],
        address=result["address"],
        port=result["port"],
        state=result["state"],
        by_interface=result.get("by_interface"),
        kind=result.get("kind", "free port"),
        numbers=numbers,
    )


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
