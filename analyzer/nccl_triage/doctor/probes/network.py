"""Interfaces with addresses, what the kernel counts on them, and the ports that connections may take."""

from __future__ import annotations

import ipaddress
from typing import Any

from nccl_triage.doctor.probes.seen import Seen, Where, entries, number, text
from nccl_triage.verify.worker import host

#: IPv6 addresses that are kept at most.
_SIXES = 64
_COUNTED = ("rx_errors", "tx_errors", "rx_dropped", "rx_missed_errors")


def probe(where: Where) -> Seen:
    """Return the IPv4 interfaces in the kernel's order, global IPv6 addresses, the interfaces without IPv4, those that are down, and a few settings."""
    net = where.root / "sys/class/net"
    interfaces = [{**entry, **_more(where, entry["name"])} for entry in host.interfaces()]
    named = {entry["name"] for entry in interfaces}
    sixes = [entry for line in (text(where.root / "proc/net/if_inet6") or "").splitlines() if (entry := _six(line))]
    ports = (text(where.root / "proc/sys/net/ipv4/ip_local_port_range") or "").split()
    return Seen(
        {
            "interfaces": interfaces,
            "without_address": [entry.name for entry in entries(net) if entry.name not in named],
            "ipv6": sixes[:_SIXES],
            "default": host.default_interface(),
            "ports": [int(port) for port in ports if port.isdigit()],
            "rp_filter": number(where.root / "proc/sys/net/ipv4/conf/all/rp_filter"),
        }
    )


def _six(line: str) -> dict[str, Any] | None:
    """Return an IPv6 address that other hosts can reach (Linux, ``if6_seq_show``): its scope is global."""
    words = line.split()
    if len(words) != 6 or len(words[0]) != 32 or words[3] != "00":
        return None
    try:
        return {"name": words[5][:32], "address": str(ipaddress.IPv6Address(int(words[0], 16)))}
    except ValueError:
        return None


def _more(where: Where, name: str) -> dict[str, Any]:
    folder = where.root / "sys/class/net" / name
    counters = {counter: number(folder / "statistics" / counter) for counter in _COUNTED}
    return {
        "state": text(folder / "operstate"),
        "carrier_changes": number(folder / "carrier_changes"),
        "errors": (counters["rx_errors"] or 0) + (counters["tx_errors"] or 0),
        "dropped": (counters["rx_dropped"] or 0) + (counters["rx_missed_errors"] or 0),
    }
