"""Which host announced which address in which network, and which addresses could not be reached."""

from __future__ import annotations

from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import network
from nccl_triage.story.addresses import Address, network_of, parse

#: Networks, members of one network and failed connections listed at most.
MAX_NETWORKS, MAX_MEMBERS, MAX_FAILED = 40, 64, 64


def _kind(address: Address, interface: str) -> str:
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if network.is_virtual(interface):
        return "container"
    return "public" if address.is_global else "private"


def describe(case: Case) -> dict[str, Any] | None:
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
        elif len(failed) < MAX_FAILED:
            where = {"path": event.source, "line": event.line}
            failed[key] = {"from": key[0], "to": hosts.get(text), "address": text, "count": event.count, **where}
    if not networks and not failed:
        return None
    ordered = sorted(networks.values(), key=lambda n: (-n["total"], n["network"]))
    return {"networks": ordered[:MAX_NETWORKS], "total": len(ordered), "failed": list(failed.values())}
