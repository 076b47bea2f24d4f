"""The network: which addresses the hosts announced, and whether the others could reach them.

Addresses come from NCCL's ``Bootstrap : Using IFACE:IP<port>`` and ``NET/Socket : Using [0]IFACE:IP<port> [1]..`` (bootstrap.cc,
transport/net_socket.cc), connection errors that name the peer, Ray's ``ip=``, ``MASTER_ADDR``-like fields.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.story import addresses
from nccl_triage.story.addresses import network_of, parse

_VIRTUAL = lazily(r"^(?:docker\d*|br-[0-9a-f]+|virbr\d*|veth\w*|cni\d*|flannel[\w.]*|lxcbr\d*|podman\d*)$")


def is_virtual(interface: str) -> bool:
    """Tell whether an interface connects containers or bridges of one host only, such as docker0, virbr0 or veth0."""
    return _VIRTUAL.match(interface) is not None


def announced(case: Case) -> list[tuple[str | None, str, str, Event]]:
    """Return (host, interface, address, event) for every address that a process announced as its own."""
    found = [
        (case.host(event), iface, ip, event)
        for event in case.of("interface.chosen")
        for iface, ip in addresses.announced_by(event)
    ]
    for event in case.having("connection.refused", "local"):
        local = event.fields["local"].rsplit("]:", 1)[0].strip("[]")
        if parse(local) is not None:
            found.append((case.host(event), "", local, event))
    return found


def targets(case: Case) -> list[tuple[str, Event]]:
    """Return (address, event) for every peer that could not be connected to."""
    found = []
    for event in case.of("connection.refused"):
        for name in ("peer", "address", "remote", "remote_ip", "addr", "ip", "host"):
            value = event.fields.get(name)
            if value and parse(value) is not None:
                found.append((value.strip("[]"), event))
                break
    return found


@fact("network.multi_host", "the job spans more than one host, as far as names and addresses tell")
def _multi(case: Case) -> Fact | None:
    hosts = set(case.identity.hosts)
    addresses = {e.context.address for e in case.events if e.context.address}
    if len(hosts) > 1 or len(addresses) > 1:
        return Fact(True, [])
    nnodes = [e for e in case.events if (n := e.number("nnodes")) is not None and n > 1]
    return Fact(bool(nnodes), nnodes[:1])


@fact("network.virtual_interface", "a process chose a container or bridge interface (docker0, virbr0, br-.., veth..)")
def _virtual(case: Case) -> Fact | None:
    found = [
        (iface, event)
        for _, iface, _, event in announced(case)
        if _VIRTUAL.match(iface) and _first_choice(event, iface)
    ]
    return Fact(found[0][0], [event for _, event in found][:3]) if found else None


def _first_choice(event: Event, iface: str) -> bool:
    pairs = addresses.announced_by(event)
    return bool(pairs) and pairs[0][0] == iface


@fact(
    "network.loopback_interface", "a process chose the loopback interface or announced 127.x in a job of several hosts"
)
def _loopback(case: Case) -> Fact | None:
    found = [
        event
        for _, iface, ip, event in announced(case)
        if (iface == "lo" or ((a := parse(ip)) is not None and a.is_loopback)) and _first_choice(event, iface)
    ]
    if not found or not case.value("network.multi_host"):
        return None
    return Fact(True, found[:3])


@fact("network.target", "the address that connections to failed most often")
def _target(case: Case) -> Fact | None:
    found = targets(case)
    if not found:
        return None
    counted: dict[str, list[Event]] = defaultdict(list)
    for address, event in found:
        counted[address].append(event)
    best = max(counted, key=lambda a: (len(counted[a]), a))
    return Fact(best, counted[best][:4])


@fact("network.target_loopback", "connections to 127.x failed: a host announced its loopback address to others")
def _target_loopback(case: Case) -> Fact | None:
    found = [e for a, e in targets(case) if (p := parse(a)) is not None and p.is_loopback]
    return Fact(True, found[:3]) if found else None


@fact("network.target_bridge", "connections to a container bridge address (172.17.x, 192.168.122.x) failed")
def _target_bridge(case: Case) -> Fact | None:
    bridges = [ipaddress.ip_network("172.17.0.0/16"), ipaddress.ip_network("192.168.122.0/24")]
    found = [e for a, e in targets(case) if (p := parse(a)) is not None and any(p in net for net in bridges)]
    return Fact(True, found[:3]) if found else None


@fact(
    "network.target_virtual",
    "connections failed to an address of a container bridge or veth interface that a process announced among its own",
)
def _target_virtual(case: Case) -> Fact | None:
    virtual = {
        network_of(a): e for _, i, ip, e in announced(case) if _VIRTUAL.match(i) and (a := parse(ip)) is not None
    }
    for address, event in targets(case):
        parsed = parse(address)
        if parsed is not None and (known := virtual.get(network_of(parsed))) is not None:
            return Fact(address, [event, known])
    return None


@fact("network.same_address", "two hosts announced the same address: each reaches only itself there")
def _same_address(case: Case) -> Fact | None:
    owners: dict[str, dict[str, Event]] = defaultdict(dict)
    for host, _, ip, event in announced(case):
        if host and (address := parse(ip)) is not None and not address.is_link_local:
            owners[ip].setdefault(host, event)
    for ip, by_host in sorted(owners.items()):
        names = sorted(by_host, key=len)
        # Two writers on one stream may glue a counter in front of a name, which does not make it another host.
        if len([name for name in names if not any(name != other and name.endswith(other) for other in names)]) > 1:
            return Fact(ip, list(by_host.values())[:3])
    return None


@fact("network.disjoint_hosts", "two hosts announced addresses that share no network: each with its address")
def _disjoint(case: Case) -> Fact | None:
    by_host: dict[str, dict[str, Event]] = defaultdict(dict)
    for host, iface, ip, event in announced(case):
        address = parse(ip)
        if (
            host
            and address is not None
            and not address.is_loopback
            and not address.is_link_local
            and not _VIRTUAL.match(iface)
        ):
            by_host[host].setdefault(ip, event)
    # Of hosts with the same networks it is enough to compare the first.
    networks: dict[frozenset[str], str] = {}
    for host in sorted(by_host):
        networks.setdefault(_networks(by_host[host]), host)
    for (nets_one, one), (nets_two, two) in combinations(networks.items(), 2):
        if nets_one - nets_two and nets_two - nets_one:
            first, second = _outside(by_host[one], nets_two), _outside(by_host[two], nets_one)
            return Fact([f"{one} ({first})", f"{two} ({second})"], [by_host[one][first], by_host[two][second]])
    return None


def _networks(ips: Iterable[str]) -> frozenset[str]:
    return frozenset(network_of(address) for ip in ips if (address := parse(ip)) is not None)


def _outside(ips: Iterable[str], networks: frozenset[str]) -> str:
    """Return the first of the addresses that lies in none of the networks."""
    return min(ip for ip in ips if (address := parse(ip)) is not None and network_of(address) not in networks)


@fact("network.refused", "connections were refused (nothing listens, or a firewall answers with a reset)")
def _refused(case: Case) -> Fact | None:
    found = [e for e in case.of("connection.refused") if "refused" in e.text.lower()]
    return Fact(True, found[:3]) if found else None
