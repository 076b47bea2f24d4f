"""How hosts reach each other: the reachability matrix."""

from __future__ import annotations

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
