"""The reachability matrix: which host reaches which address and port of which other, by which interface."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.verify.cluster import Cluster

#: Hosts of which every pair is probed; more are probed as a ring with chords, which reaches every host from several.
ALL_PAIRS = 24
_CHORDS = (1, 2, 5, 11)
#: States of a path that no collective can use, and of one that works badly.
BROKEN = frozenset({"no-route", "refused", "prohibited", "silent", "reset", "no-data", "large-packets-lost", "failed"})
DEGRADED = frozenset({"lossy", "delayed"})
#: What a probe measures of a path, where it gets that far.
_NUMBERS = ("connect_s", "round_trip_s", "sent_again", "answered", "error")


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


def measure(cluster: Cluster, *, also: int | None = None, timeout: float = 4.0) -> ReachabilityMatrix:
    """Let every agent listen and probe its peers; ``also`` is a port beside the free ones: that of the job's store."""
    hosts = range(len(cluster.places))
    if len(hosts) < 2:
        return ReachabilityMatrix()
    wish = {"ports": ports_of(len(hosts)), "also": also or 0}
    listening = cluster.ask("listen", hosts, 10.0, dict.fromkeys(hosts, wish))
    targets: dict[int, list[dict[str, Any]]] = {place: [] for place in hosts}
    for origin, target in pairs(len(hosts)):
        for entry in listening.get(target, {}).get("where", []):
            where = {"host": cluster.name(target), "interface": entry["interface"], "address": entry["address"]}
            targets[origin].append({**where, "ports": entry["ports"]})
            if entry["also"]:
                targets[origin].append({**where, "ports": entry["also"], "kind": "port of the log"})
    # The large message alone may wait three times for its answer.
    answers = cluster.ask(
        "probe",
        hosts,
        15.0 + 4 * timeout,
        {place: {"targets": targets[place], "timeout": timeout} for place in hosts},
    )
    cluster.ask("end_listen", hosts, 5.0)
    return ReachabilityMatrix(
        [
            _path(cluster.name(place), result)
            for place, answer in sorted(answers.items())
            for result in answer["results"]
        ]
    )


def _path(origin: str, result: Mapping[str, Any]) -> Path:
    """Return one result of a probe, as the agent of ``origin`` tells it."""
    return Path(
        origin=origin,
        target=result["to_host"],
        interface=result["to_interface"],
        address=result["address"],
        port=result["port"],
        state=result["state"],
        by_interface=result.get("by_interface"),
        kind=result.get("kind", "free port"),
        numbers={name: result[name] for name in _NUMBERS if name in result},
    )
