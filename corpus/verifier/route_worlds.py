"""Two hosts whose packets do not get through, each time for one reason that is known: routes, neighbours, links, filters.

``python -m corpus.verifier.route_worlds`` probes all of them (as root) and writes what the probe told into
tests/verify/recorded_paths.json, with which the findings are tested where nobody is root.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.scenarios import network
from corpus.scenarios.network import HOSTS, Lab, inside, sh
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.processes import ProcessLauncher
from nccl_triage.verify import reachability
from nccl_triage.verify.cluster import GREETING, Cluster, worker

World = Callable[[], AbstractContextManager[Lab]]
ROUTE, FIREWALL, LINK = "network-unreachable-subnet", "network-firewall-port", "network-link-fault"
#: A neighbour that nobody is.
_NOBODY = "02:00:00:00:00:99"


@dataclass(frozen=True)
class Broken:
    """A world, what is wrong in it, the cause of which that is a case, and the interface that the job asks for."""

    does: str
    cause: str
    make: World
    interface: str | None = None


def _flat(*commands: tuple[int, str]) -> World:
    """Return two hosts in one network after commands (host, command) on them."""

    @contextlib.contextmanager
    def made() -> Iterator[Lab]:
        with network.flat(2) as lab:
            for host, command in commands:
                inside(lab.hosts[host], command)
            yield lab

    return made


def _port(lab: Lab, host: int) -> str:
    """Return the port of the switch that leads to a host."""
    lines = sh(f"ip -n {lab.switch} -o link show master br0").splitlines()
    return sorted(line.split(": ")[1].split("@")[0] for line in lines)[host]


@contextlib.contextmanager
def _switch(command: str) -> Iterator[Lab]:
    """Yield two hosts after a change to the second one's port of the switch."""
    with network.flat(2) as lab:
        lab.bridge("br1")
        sh(f"ip -n {lab.switch} link set {_port(lab, 1)} {command}")
        yield lab


def _routed(kind: str, host: int) -> World:
    """Return a world in which a host has a route of a special type (ip-route(8)) to the other one."""
    return _flat((host, f"ip route add {kind} 10.0.0.{2 - host}/32"))


def _rule(host: int, chain: str, target: str) -> tuple[int, str]:
    side = "-i" if chain == "INPUT" else "-o"
    return host, f"iptables -A {chain} {side} eth0 -p tcp --syn -j {target}"


def _worlds() -> Iterator[tuple[str, Broken]]:
    for host, which in enumerate(("first", "second")):
        for kind in ("prohibit", "blackhole", "unreachable"):
            does = f"the {which} host has a route of the type {kind} to the other"
            yield f"{kind}-{which}", Broken(does, ROUTE, _routed(kind, host))
        does = f"the {which} host has no route to the network in which both are"
        yield f"missing-{which}", Broken(does, ROUTE, _flat((host, "ip route del 10.0.0.0/24")))
        does = f"the {which} host has a permanent neighbour entry for the other that is wrong"
        wrong = f"ip neigh replace 10.0.0.{2 - host} lladdr {_NOBODY} dev eth0 nud permanent"
        yield f"neighbour-{which}", Broken(does, ROUTE, _flat((host, wrong)))
    both = [(host, "ip route del 10.0.0.0/24") for host in (0, 1)]
    yield "missing-both", Broken("neither host has a route to the network in which both are", ROUTE, _flat(*both))
    does = "the ports of the two hosts are in different networks of the switch"
    yield "vlan", Broken(does, ROUTE, lambda: _switch("master br1"))
    for gateway in network.GATEWAYS:
        make = lambda gateway=gateway: network.two_subnets(gateway=gateway)  # noqa: E731
        yield f"gateway-{gateway}", Broken(f"two networks, gateway: {gateway}", ROUTE, make, "eth1")
    yield "no-carrier", Broken("the second host's link is down at the switch", LINK, lambda: _switch("down"))
    yield "link-off", Broken("the second host's interface is down", LINK, _flat((1, "ip link set eth0 down")))
    hole = "iptables -A INPUT -i eth0 -p tcp -m length --length 1000:65535 -j DROP"
    yield "mtu-hole", Broken("packets of 1,000 bytes and more vanish", LINK, _flat((0, hole), (1, hole)))
    for way in ("host-prohibited", "net-prohibited", "admin-prohibited", "net-unreachable", "port-unreachable"):
        does = f"the second host rejects new connections with icmp-{way}"
        yield f"reject-{way}", Broken(does, FIREWALL, _flat(_rule(1, "INPUT", f"REJECT --reject-with icmp-{way}")))
    for name, host, chain, target in (
        ("reset-one-way", 1, "INPUT", "REJECT --reject-with tcp-reset"),
        ("drop-one-way", 1, "INPUT", "DROP"),
        ("drop-out", 0, "OUTPUT", "DROP"),
        ("reject-out", 0, "OUTPUT", "REJECT --reject-with icmp-admin-prohibited"),
    ):
        does = f"host {host + 1} filters new connections: {chain} {target}"
        yield name, Broken(does, FIREWALL, _flat(_rule(host, chain, target)))
    drops = [_rule(host, "INPUT", "DROP") for host in (0, 1)]
    yield "drop-both", Broken("both hosts drop new connections", FIREWALL, _flat(*drops))


WORLDS: Mapping[str, Broken] = dict(_worlds())


def probe(lab: Lab) -> dict[str, Any]:
    """Return what agents on the two hosts tell of themselves and of the paths; equal paths once, with their number."""
    places = [HostPlace(HOSTS[host], ("ip", "netns", "exec", lab.hosts[host])) for host in (0, 1)]
    with Cluster(ProcessLauncher(places, worker())) as cluster:
        cluster.greet(GREETING)
        paths = [path.to_dict() for path in reachability.measure(cluster).paths]
        facts = cluster.facts
    told = ("state", "error", "said_by", "answer_lost")
    same = ("from", "to", "to_interface", "address", "by_interface", *told)
    times = Counter(json.dumps({name: path[name] for name in same if name in path}) for path in paths)
    hosts = [
        {
            "host": name,
            "own_addresses": [],
            "interfaces": [{**one, "speed_mbit": None} for one in entry["interfaces"]],
        }
        for name, entry in zip(HOSTS, facts, strict=False)
    ]
    return {"hosts": hosts, "paths": [{**json.loads(path), "times": number} for path, number in times.items()]}


def main() -> int:
    """Probe all worlds and write what was told."""
    told = {}
    for name, world in WORLDS.items():
        with world.make() as lab:
            told[name] = probe(lab)
        print(name, file=sys.stderr, flush=True)
    where = Path(__file__).parents[2] / "tests" / "verify" / "recorded_paths.json"
    where.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
