"""How hosts reach each other: the reachability matrix, the interfaces that a backend chooses, and what both show.

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
from nccl_triage.verify.collective_run import RunFinding
from nccl_triage.verify.decide import OTHERWISE, cause_of

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
    docker, bridges = ([entry for entry in usable if entry["name"].startswith(kind)] for kind in ("docker", "virbr"))
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


Facts = Mapping[str, Any]


def interface_findings(
    names: Sequence[str], facts: Sequence[Facts], backend: str, env: Mapping[str, str]
) -> list[RunFinding]:
    """Return what is wrong with the interfaces that the backend would take on these hosts."""
    taken = [chosen(entry, backend, env) for entry in facts]
    wish = env.get("NCCL_SOCKET_IFNAME" if backend == "nccl" else "GLOO_SOCKET_IFNAME")
    found = []
    for (one, mine), (two, theirs) in itertools.combinations(zip(names, taken, strict=True), 2):
        shared = {entry["address"] for entry in mine} & {entry["address"] for entry in theirs}
        if shared and not any(entry["loopback"] for entry in mine):
            interface = next(entry["name"] for entry in mine if entry["address"] in shared)
            address = sorted(shared)[0]
            en = (
                f"{one} and {two} both have {address} on {interface}: a bridge on each host, not a network between them"
            )
            zh = f"{one} 和 {two} 的 {interface} 地址都是 {address}：这是各自的网桥，而不是互通的网络"
            found.append(_wrong_interface("same-address", en, zh, one, two))
    for name, interfaces, entry in zip(names, taken, facts, strict=True):
        if not interfaces or not any(one["up"] for one in interfaces):
            have = ", ".join(one["name"] for one in entry["interfaces"])
            en = f"{name} has no usable interface {wish or ''} (it has {have})".replace("  ", " ")
            zh = f"{name} 没有可用的网络接口 {wish or ''}（现有 {have}）"
            found.append(_wrong_interface("no-interface", en, zh, name))
        elif len(names) > 1 and all(one["loopback"] for one in interfaces):
            address = interfaces[0]["address"]
            en = f"{name} would use its loopback {address}, which no other host can reach"
            zh = f"{name} 将使用回环地址 {address}，其他主机无法访问"
            found.append(_wrong_interface("loopback", en, zh, name))
    return found


def _wrong_interface(kind: str, en: str, zh: str, *hosts: str) -> RunFinding:
    return RunFinding(cause_of(kind), kind, {"en": en, "zh": zh}, hosts=hosts)


def path_findings(
    names: Sequence[str], facts: Sequence[Facts], matrix: ReachabilityMatrix, backend: str, env: Mapping[str, str]
) -> list[RunFinding]:
    """Return what the probe found on the paths that the backend would take; one finding a pair of hosts, worst first."""
    broken, degraded = [], []
    for (a, one), (b, two) in itertools.combinations(enumerate(names), 2):
        mine, theirs = chosen(facts[a], backend, env), chosen(facts[b], backend, env)
        # NCCL's sockets spread over all interfaces that it takes, Gloo has one.
        count = None if backend == "nccl" else 1
        paths = [
            *matrix.between(one, two, [entry["address"] for entry in theirs[:count]]),
            *matrix.between(two, one, [entry["address"] for entry in mine[:count]]),
        ]
        together = bool(mine and theirs) and same_network(mine[0], theirs[0])
        bad = [path for path in paths if path.state in BROKEN and path.kind == "free port"]
        poor = [path for path in paths if path.state in DEGRADED]
        if bad:
            worst = bad[0]
            # Some ports of the same address answer: what is missing is no route.
            some_open = any(path.usable and path.origin == worst.origin for path in paths)
            situation = _situation(str(worst.numbers.get("error")), together or some_open)
            broken.append(_finding(worst.state, one, two, worst, situation))
        elif poor:
            degraded.append(_finding(poor[0].state, one, two, poor[0]))
    return broken + degraded


def _situation(error: str, together: bool) -> str:
    """Return what decides between a firewall and a missing route: whether both ends lie in one network, and the answer."""
    if not together:
        return OTHERWISE
    return "filtered" if error == "EHOSTUNREACH" else "one-network"


def _finding(state: str, one: str, two: str, path: Any, situation: str = OTHERWISE) -> RunFinding:
    kind = f"path-{state}"
    where = f"{path.address}:{path.port} ({path.interface} of {path.target})"
    return RunFinding(
        cause_of(kind, situation),
        kind,
        {
            "en": f"from {path.origin} to {where}: {state} {path.numbers.get('error', '')}".rstrip(),
            "zh": f"从 {path.origin} 到 {where}：{state} {path.numbers.get('error', '')}".rstrip(),
        },
        hosts=(one, two),
    )
