"""Interfaces with addresses, what the kernel counts on them, and the ports that connections may take."""

from __future__ import annotations

from typing import Any

from nccl_triage.doctor.probes.seen import Seen, Where, entries, number, text
from nccl_triage.verify.worker import host

_COUNTED = ("rx_errors", "tx_errors", "rx_dropped", "rx_missed_errors")


def probe(where: Where) -> Seen:
    """Return the IPv4 interfaces in the kernel's order, those that are down, and a few settings."""
    net = where.root / "sys/class/net"
    interfaces = [{**entry, **_more(where, entry["name"])} for entry in host.interfaces()]
    named = {entry["name"] for entry in interfaces}
    ports = (text(where.root / "proc/sys/net/ipv4/ip_local_port_range") or "").split()
    return Seen(
        {
            "interfaces": interfaces,
            "without_address": [entry.name for entry in entries(net) if entry.name not in named],
            "default": host.default_interface(),
            "ports": [int(port) for port in ports if port.isdigit()],
            "rp_filter": number(where.root / "proc/sys/net/ipv4/conf/all/rp_filter"),
        }
    )


def _more(where: Where, name: str) -> dict[str, Any]:
    folder = where.root / "sys/class/net" / name
    counters = {counter: number(folder / "statistics" / counter) for counter in _COUNTED}
    return {
        "state": text(folder / "operstate"),
        "carrier_changes": number(folder / "carrier_changes"),
        "errors": (counters["rx_errors"] or 0) + (counters["tx_errors"] or 0),
        "dropped": (counters["rx_dropped"] or 0) + (counters["rx_missed_errors"] or 0),
    }
