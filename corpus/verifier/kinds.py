"""The kinds of faults, each with the cause that a log would suggest and what the verifier must make of it.

A fault is real: a process that is killed or stopped, a firewall's rule, a route that is missing. The verifier knows
nothing of it; it sees what its own runs and probes show.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from corpus.scenarios import network, wire
from corpus.scenarios.network import HOSTS, Lab, inside
from corpus.verifier.route_worlds import FIREWALL, LINK, ROUTE, WORLDS

World = Callable[[], "AbstractContextManager[Lab | None]"]


@dataclass(frozen=True)
class Kind:
    """A fault, the cause under suspicion, and the verdict and the culprits that are right.

    ``says``: words that a finding must have, where a fault has a direction.
    """

    name: str
    does: str
    cause: str
    outcome: str
    found: str | None = None
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    says: str = ""
    world: int = 4
    places: int = 1
    make: World | None = None
    faults: dict[str, Any] = field(default_factory=dict)
    asks: dict[str, Any] = field(default_factory=dict)
    patience: float = 0.2
    backends: tuple[str, ...] = ("gloo", "nccl")

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with this world."""
        return self.name.startswith("healthy")


def of_rank(name: str, does: str, cause: str, outcome: str, found: str, fault: str | None = None, **more: Any) -> Kind:
    """Return a fault that rank 2 of 4 commits."""
    seconds = more.pop("seconds", 0.0)
    faults = {"2": {"name": fault or name, "seconds": seconds}}
    return Kind(name, does, cause, outcome, found or None, ranks=(2,), faults=faults, **more)


PAIR = (HOSTS[0], HOSTS[1])
_SYN = "INPUT -i eth0 -p tcp --syn"


def between(name: str, does: str, cause: str, make: World, found: str | None = None, **more: Any) -> Kind:
    """Return a fault of the network between two hosts, one rank each."""
    more = {"outcome": "confirmed", "hosts": PAIR, **more}
    return Kind(
        name,
        does,
        cause,
        found=cause if found is None else found or None,
        world=2,
        places=2,
        make=make,
        backends=("gloo",),
        **more,
    )


def _both(rule: str) -> World:
    """Return a world in which both hosts have a rule of iptables from the beginning."""
    return lambda: network.firewalled(2, {0: (rule,), 1: (rule,)})


def _with_port(port: int, make: World) -> World:
    @contextlib.contextmanager
    def made() -> Iterator[Lab | None]:
        with make() as lab:
            assert lab is not None
            inside(lab.hosts[0], f"iptables -A INPUT -i eth0 -p tcp --dport {port} -j DROP")
            yield lab

    return made


@contextlib.contextmanager
def _port_taken(port: int) -> Iterator[None]:
    """Another program that listens on the port of the log."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", port))
        holder.listen(1)
        yield None


#: Ports outside of the ephemeral range, so that nobody else takes them by chance.
TAKEN_PORT, BLOCKED_PORT, FREE_PORT = 23461, 23462, 23463


def _healthy() -> list[Kind]:
    kinds = []
    for world in (2, 4, 8):
        for cause, outcome in (
            ("rank-divergence", "inconclusive"),
            ("collective-mismatch", "inconclusive"),
            ("straggler", "inconclusive"),
            ("network-wrong-interface", "refuted"),
        ):
            kinds.append(
                Kind(
                    f"healthy-{world}-{cause}", f"{world} ranks of one host, nothing wrong", cause, outcome, world=world
                )
            )
    for cause, outcome, asks in (
        ("network-unreachable-subnet", "refuted", {}),
        ("network-firewall-port", "refuted", {}),
        ("network-wrong-interface", "refuted", {}),
        ("network-link-fault", "not-reproduced", {}),
        ("rendezvous-failed", "not-reproduced", {}),
        ("port-in-use", "not-reproduced", {"port": FREE_PORT}),
        ("process-crashed", "not-reproduced", {}),
    ):
        kinds.append(
            Kind(
                f"healthy-hosts-{cause}",
                "2 hosts, nothing wrong",
                cause,
                outcome,
                world=2,
                places=2,
                make=lambda: network.flat(2),
                asks=asks,
                backends=("gloo",),
            )
        )
    return kinds


def _told_apart() -> Iterator[Kind]:
    """Yield worlds without a way between the hosts, each under its own cause and under others that look like it."""
    for name, broken in WORLDS.items():
        if broken.interface is not None or broken.cause == FIREWALL or name == "mtu-hole":
            continue
        asks = {"env": {"NCCL_SOCKET_IFNAME": "eth0"}}
        own: dict[str, Any] = {"make": broken.make, "found": broken.cause, "asks": asks}
        yield between(name, broken.does, broken.cause, **own)
        for other in (FIREWALL, "network-wrong-interface"):
            does = f"{broken.does}; {other} is suspected"
            yield between(f"{name}-not-{other}", does, other, outcome="inconclusive", **own)
    hole = WORLDS["mtu-hole"]
    does = f"{hole.does}, the collective is smaller, and a firewall is suspected"
    yield between("mtu-hole-not-firewall", does, FIREWALL, hole.make, LINK, outcome="inconclusive", asks={"numel": 16})
    lines = ("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc] connect: Network is unreachable",) * 2
    yield Kind(
        "healthy-proven-by-the-log",
        "2 hosts, nothing wrong; the log quotes that the network was unreachable",
        ROUTE,
        "not-reproduced",
        world=2,
        places=2,
        make=lambda: network.flat(2),
        asks={"lines": lines},
        backends=("gloo",),
    )


def _one_way(host: int, rule: str) -> World:
    """Return a world in which one of two hosts has a rule of iptables from the beginning."""
    return lambda: network.firewalled(2, {host: (rule,)})


def _loss(percent: int) -> Kind:
    """Return a network in which both hosts lose a share of what they receive."""
    rule = f"INPUT -i eth0 -m statistic --mode random --probability {percent / 100} -j DROP"
    does = f"both hosts lose {percent} % of what they receive"
    return between(f"loss-{percent}", does, "network-link-fault", _both(rule), patience=0.5, says="lossy")


KINDS: tuple[Kind, ...] = (
    of_rank("sigkill", "rank 2 is killed by SIGKILL before the collective", "process-crashed", "confirmed", "process-crashed"),
    of_rank("sigsegv", "rank 2 reads address 0", "process-crashed", "confirmed", "process-crashed"),
    of_rank("sigterm", "rank 2 gets SIGTERM; a crash is suspected", "process-crashed", "inconclusive", "job-preempted"),
    of_rank("sigstop", "rank 2 is stopped before the collective", "straggler", "confirmed", "rank-divergence"),
    of_rank("late", "rank 2 comes 2 s late", "straggler", "confirmed", "straggler", seconds=2.0),
    of_rank("slow", "rank 2 sleeps 0.5 s before each iteration", "straggler", "confirmed", "straggler", seconds=0.5),
    of_rank("starved", "rank 2 shares its core with six programs that never rest", "straggler", "confirmed", "straggler", patience=0.5),
    of_rank("absent", "rank 2 never comes to the collective", "rank-divergence", "confirmed", "rank-divergence"),
    of_rank("missing", "rank 2 never joins the store", "rendezvous-failed", "confirmed", "rendezvous-failed", "never-joins"),
    of_rank("leaves", "rank 2 exits with code 0 before the collective", "rank-divergence", "confirmed", "rank-divergence"),
    of_rank("wrong-op", "rank 2 calls a broadcast", "collective-mismatch", "confirmed", "collective-mismatch"),
    of_rank("wrong-order", "rank 2 calls a barrier first", "collective-mismatch", "confirmed", "collective-mismatch"),
    of_rank("wrong-size", "rank 2 passes half of the elements", "collective-mismatch", "confirmed", "collective-mismatch"),
    of_rank("wrong-dtype", "rank 2 passes float64", "collective-mismatch", "confirmed", "collective-mismatch"),
    of_rank("hidden-size", "rank 2 hands half of the elements to the library", "collective-mismatch", "confirmed", "collective-mismatch", backends=("gloo",)),
    of_rank("hidden-dtype", "rank 2 hands float64 to the library", "collective-mismatch", "confirmed", "collective-mismatch", backends=("gloo",)),
    of_rank("skips", "rank 2 leaves out one collective", "collective-mismatch", "confirmed", "collective-mismatch", backends=("gloo",)),
    of_rank("leaves-midway", "rank 2 exits with code 0 between two collectives", "rank-divergence", "confirmed", "rank-divergence", backends=("gloo",)),
    of_rank("exception", "rank 2 raises a ValueError; divergence is suspected", "rank-divergence", "inconclusive", "application-exception", "raise"),
    of_rank("out-of-memory", "rank 2 allocates too much; divergence is suspected", "rank-divergence", "inconclusive", "host-out-of-memory", "oom", backends=("gloo",)),
    Kind(
        "bad-interface",
        "the job's variables name an interface that does not exist",
        "network-wrong-interface",
        "confirmed",
        "network-wrong-interface",
        asks={"env": {"NCCL_SOCKET_IFNAME": "nosuch0"}},
        world=2,
    ),
    between("docker-bridge", "the job's variables name docker0, which has the same address on both hosts", "network-wrong-interface", lambda: network.with_bridge(2), asks={"env": {"NCCL_SOCKET_IFNAME": "docker0"}}),
    between("no-route", "eth1 of the two hosts is in two networks without a route", "network-unreachable-subnet", lambda: network.two_subnets(), asks={"env": {"NCCL_SOCKET_IFNAME": "eth1"}}),
    between("dead-gateway", "a router between the two networks swallows every packet", "network-unreachable-subnet", lambda: network.two_subnets(gateway="blackhole"), asks={"env": {"NCCL_SOCKET_IFNAME": "eth1"}}),
    between("firewall-drop", "both hosts drop new connections", "network-firewall-port", _both(f"{_SYN} -j DROP")),
    between("firewall-reset", "both hosts reset new connections", "network-firewall-port", _both(f"{_SYN} -j REJECT --reject-with tcp-reset")),
    between("firewall-prohibited", "both hosts answer new connections with host-prohibited", "network-firewall-port", _both(f"{_SYN} -j REJECT --reject-with icmp-host-prohibited")),
    between("firewall-one-way", "the second host drops new connections, the first accepts them", "network-firewall-port", _one_way(1, f"{_SYN} -j DROP"), says=f"from {HOSTS[0]} to"),
    between("firewall-other-way", "the first host drops new connections, the second accepts them", "network-firewall-port", _one_way(0, f"{_SYN} -j DROP"), says=f"from {HOSTS[1]} to"),
    between("packets-one-way", "the second host drops everything that the first sends over TCP", "network-firewall-port", _one_way(1, "INPUT -i eth0 -p tcp -j DROP"), says=f"packets from {HOSTS[0]} to {HOSTS[1]} are dropped"),
    _loss(1),
    _loss(2),
    _loss(5),
    _loss(8),
    between("delay", "frames between the hosts take 60 ms", "network-link-fault", lambda: wire.distant(2, 0.12)),
    between("mtu-hole", "packets of 1,000 bytes and more vanish between the hosts", "network-link-fault", _both("INPUT -i eth0 -p tcp -m length --length 1000:65535 -j DROP")),
    Kind(
        "port-in-use",
        "another program listens on the port of the log",
        "port-in-use",
        "confirmed",
        "port-in-use",
        world=2,
        make=lambda: _port_taken(TAKEN_PORT),
        asks={"port": TAKEN_PORT},
    ),
    between(
        "store-unreachable",
        "a firewall drops what goes to the port of the log, and nothing else",
        "rendezvous-failed",
        _with_port(BLOCKED_PORT, lambda: network.flat(2)),
        asks={"port": BLOCKED_PORT},
    ),
    of_rank(
        "short-timeout",
        "rank 2 comes 2 s late, and the timeout of the log is 1 s",
        "timeout-too-short",
        "confirmed",
        "",
        "late",
        seconds=2.0,
        asks={"timeout_s": 1.0},
    ),
    *_told_apart(),
    *_healthy(),
)  # fmt: skip

#: Eight faults that a verifier must tell apart (ports blocked both ways and one way, a hole for large packets, loss of 1, 2
#: and 5 %, a slow rank, a killed one, another dtype, a missing route), and two healthy hosts under seven suspicions.
EIGHT: tuple[str, ...] = (
    "firewall-drop",
    "firewall-one-way",
    "firewall-other-way",
    "packets-one-way",
    "mtu-hole",
    "loss-1",
    "loss-2",
    "loss-5",
    "slow",
    "starved",
    "sigkill",
    "wrong-dtype",
    "no-route",
    *(kind.name for kind in KINDS if kind.name.startswith("healthy-hosts-")),
)
