"""The network of a job: connections between ranks or hosts, addresses by network, and what could not connect.

NCCL numbers ranks within a communicator. They are taken for the job's ranks only in the largest communicator: where
the process that printed a line is known to be another rank there, or its peer to sit on another device, the line
speaks of a smaller group and is left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NamedTuple

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import network
from nccl_triage.observations.links import NOT_KNOWN, ChannelLink, LinkSighting
from nccl_triage.story.addresses import Address, network_of, parse

#: Maximum number of rows and columns, of connections listed, and of failed connections listed.
MAX_NAMES, MAX_LINKS, MAX_FAILED_LINKS = 64, 2000, 32
#: A higher rank is taken for a parsing error.
_MAX_RANK = 1_000_000

_Process = tuple[str, int]
_Way = tuple[int, int, str, bool]


class _Ranks(NamedTuple):
    """The largest communicator: its size (0 when not known), and the rank of each process in it."""

    size: int
    of_process: dict[_Process, int]


def _communicator(case: Case) -> _Ranks:
    stated: list[tuple[int, int, _Process]] = []
    for event in case.of("communicator.starting", "communicator.ready"):
        rank, size = event.number("rank"), event.number("nranks")
        if rank is not None and size is not None and 0 <= rank < size <= _MAX_RANK:
            stated.append((int(size), int(rank), _process(event.context.host, event.context.pid)))
    largest = max((size for size, _, _ in stated), default=0)
    votes: dict[_Process, set[int]] = defaultdict(set)
    for size, rank, process in stated:
        if size == largest and process[1] != NOT_KNOWN:
            votes[process].add(rank)
    return _Ranks(largest, {process: found.pop() for process, found in votes.items() if len(found) == 1})


def _process(host: str | None, pid: int | None) -> _Process:
    return host or "", NOT_KNOWN if pid is None else pid


def _of_job(links: dict[ChannelLink, LinkSighting], ranks: _Ranks) -> dict[ChannelLink, LinkSighting]:
    """Return the connections of the largest communicator."""
    kept: dict[ChannelLink, LinkSighting] = {}
    devices: dict[int, Counter[str]] = defaultdict(Counter)
    for link, seen in links.items():
        own = ranks.of_process.get((link.host, link.pid))
        if max(link.source_rank, link.target_rank) >= (ranks.size or _MAX_RANK):
            continue
        if link.size != NOT_KNOWN and ranks.size and link.size != ranks.size:
            continue
        if own is None or own == link.printer:
            kept[link] = seen
            if own is not None:
                devices[link.printer][link.printer_device] += 1
    known = {rank: found.most_common(1)[0][0] for rank, found in devices.items()}
    return {link: seen for link, seen in kept.items() if _fits(link, known)}


def _fits(link: ChannelLink, devices: dict[int, str]) -> bool:
    """Tell whether both ends sit on the devices that these ranks have in the largest communicator."""
    ends = ((link.source_rank, link.source_device), (link.target_rank, link.target_device))
    return all(not device or rank not in devices or devices[rank] == device for rank, device in ends)


def _ways(links: dict[ChannelLink, LinkSighting]) -> dict[_Way, int]:
    """Return (from, to, via, direct) -> channels as bits: sender and receiver speak of one connection."""
    found: dict[_Way, int] = {}
    for link, seen in links.items():
        way = (link.source_rank, link.target_rank, link.via, link.direct)
        found[way] = found.get(way, 0) | seen.channels
    return found


def _hosts(case: Case, links: dict[ChannelLink, LinkSighting], ranks: _Ranks) -> dict[int, str]:
    """Return the host of each rank, as far as the job or the printing process tells."""
    found = {rank: info.host for rank, info in case.identity.ranks.items() if info.host}
    for (host, _), rank in ranks.of_process.items():
        if host:
            found[rank] = host
    for link in links:
        if link.host:
            found.setdefault(link.printer, link.host)
    return found


class _Square(NamedTuple):
    """The rows and columns of the matrix (ranks, hosts or blocks of ranks) and the place of each rank."""

    unit: str
    names: list[int] | list[str]
    place: dict[int, int]


def _square(ways: dict[_Way, int], size: int, hosts: dict[int, str], failing: set[str]) -> _Square:
    """Return few ranks as they are, else hosts when all are known and few, else blocks of ranks.

    When most ranks have no connection in the log, only those with one are listed. With failed connections between hosts
    the rows are hosts wherever they are known.
    """
    members = {rank for way in ways for rank in way[:2]}
    count = max([size, *(rank + 1 for rank in members)])
    names = sorted({*(hosts[rank] for rank in members if rank in hosts), *failing})
    by_host = all(rank in hosts for rank in members) and 0 < len(names) <= MAX_NAMES
    if 0 < len(members) <= MAX_NAMES and len(ways) <= MAX_LINKS and not (failing and by_host):
        ranks = list(range(count)) if count <= min(MAX_NAMES, 2 * len(members)) else sorted(members)
        return _Square("rank", ranks, {rank: index for index, rank in enumerate(ranks)})
    if by_host:
        place = {name: index for index, name in enumerate(names)}
        return _Square("host", names, {rank: place[hosts[rank]] for rank in members})
    block = -(-count // MAX_NAMES)
    blocks = [f"{first}-{min(first + block, count) - 1}" for first in range(0, count, max(block, 1))]
    return _Square("block", blocks, {rank: rank // block for rank in members})


def _links(ways: dict[_Way, int], square: _Square) -> list[dict[str, Any]]:
    channels: Counter[_Way] = Counter()
    for (source, target, via, direct), bits in ways.items():
        channels[square.place[source], square.place[target], via, direct] += bits.bit_count()
    strongest = sorted(channels, key=lambda way: (-channels[way], way))[:MAX_LINKS]
    return [
        {"from": way[0], "to": way[1], "via": way[2], "gpudirect": way[3], "channels": channels[way]}
        for way in sorted(strongest)
    ]


def _failures(case: Case) -> list[tuple[str, str, str, int]]:
    """Return (from host, to host, path, line) of connections that could not be made, where both hosts are known."""
    known: dict[str, str] = {}
    for host, _, address, _ in network.announced(case):
        if host:
            known.setdefault(address, host)
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for address, event in network.targets(case):
        source, target = case.host(event), known.get(address) or case.identity.host_of_address(address)
        if source and target and source != target:
            found.setdefault((source, target), (event.source, event.line))
    return [(*pair, *place) for pair, place in sorted(found.items())][:MAX_FAILED_LINKS]


def peers(case: Case) -> dict[str, Any] | None:
    """Return the square of connections; None where the log names none.

    ``total`` is the number of names. ``complete`` tells whether every connection was kept. Failed connections name hosts,
    so the square is one of hosts when there are any and several hosts are known.
    """
    ranks = _communicator(case)
    table = case.observations.links
    links = _of_job(table.kept(), ranks)
    failed = _failures(case)
    if not links and not failed:
        return None
    ways, hosts = _ways(links), _hosts(case, links, ranks)
    failing = {name for source, target, _, _ in failed for name in (source, target)}
    square = _square(ways, ranks.size, hosts, failing)
    listed = _links(ways, square)
    where = {name: place for place, name in enumerate(square.names)}
    return {
        "unit": square.unit,
        "names": square.names,
        "links": listed,
        "failed": [
            {"from": where[source], "to": where[target], "path": path, "line": line}
            for source, target, path, line in failed
            if square.unit == "host"
        ],
        "total": len(square.names),
        "complete": not table.cut,
    }


#: Maximum number of networks, of members of one network, and of failed connections listed.
MAX_NETWORKS, MAX_MEMBERS, MAX_FAILED_ADDRESSES = 40, 64, 64


def _kind(address: Address, interface: str) -> str:
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if network.is_virtual(interface):
        return "container"
    return "public" if address.is_global else "private"


def networks(case: Case) -> dict[str, Any] | None:
    """Return the networks with their members and the failed connections; None where no address was announced."""
    networks: dict[str, dict[str, Any]] = {}
    hosts: dict[str, str] = {}
    for host, interface, text, event in network.announced(case):
        address = parse(text)
        if address is None:
            continue
        name = network_of(address)
        found = networks.setdefault(
            name, {"network": name, "kind": _kind(address, interface), "members": [], "total": 0}
        )
        member = {"host": host, "interface": interface or None, "address": text}
        if member not in [{key: m[key] for key in member} for m in found["members"]]:
            found["total"] += 1
            if len(found["members"]) < MAX_MEMBERS:
                found["members"].append({**member, "path": event.source, "line": event.line})
        if host:
            hosts.setdefault(text, host)
    failed: dict[tuple[str | None, str], dict[str, Any]] = {}
    for text, event in network.targets(case):
        key = (case.host(event), text)
        if key in failed:
            failed[key]["count"] += event.count
        elif len(failed) < MAX_FAILED_ADDRESSES:
            where = {"path": event.source, "line": event.line}
            failed[key] = {"from": key[0], "to": hosts.get(text), "address": text, "count": event.count, **where}
    if not networks and not failed:
        return None
    ordered = sorted(networks.values(), key=lambda n: (-n["total"], n["network"]))
    return {"networks": ordered[:MAX_NETWORKS], "total": len(ordered), "failed": list(failed.values())}
