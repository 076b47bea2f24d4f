"""Probes of the network: interfaces, their counters and ports, how the host's own name resolves, and signs of a firewall."""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from typing import Any

from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget, entries, names_of_processes, number, text
from nccl_triage.hosts.probes import host

#: IPv6 addresses that are kept at most.
_SIXES = 64
_COUNTED = ("rx_errors", "tx_errors", "rx_dropped", "rx_missed_errors")


def probe_network(where: ProbeTarget) -> ProbeResult:
    """Return the IPv4 interfaces in the kernel's order, global IPv6 addresses, the interfaces without IPv4, those that are down, and a few settings."""
    net = where.root / "sys/class/net"
    interfaces = [{**entry, **_more(where, entry["name"])} for entry in host.interfaces()]
    named = {entry["name"] for entry in interfaces}
    sixes = [entry for line in (text(where.root / "proc/net/if_inet6") or "").splitlines() if (entry := _six(line))]
    ports = (text(where.root / "proc/sys/net/ipv4/ip_local_port_range") or "").split()
    return ProbeResult(
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


def _more(where: ProbeTarget, name: str) -> dict[str, Any]:
    folder = where.root / "sys/class/net" / name
    counters = {counter: number(folder / "statistics" / counter) for counter in _COUNTED}
    return {
        "state": text(folder / "operstate"),
        "carrier_changes": number(folder / "carrier_changes"),
        "errors": (counters["rx_errors"] or 0) + (counters["tx_errors"] or 0),
        "dropped": (counters["rx_dropped"] or 0) + (counters["rx_missed_errors"] or 0),
    }


#: Lines of /etc/hosts that are kept at most.
_LINES = 16


def _sixes(name: str) -> list[str]:
    try:
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET6)})[:_LINES]
    except (OSError, ValueError):
        return []


def probe_names(where: ProbeTarget) -> ProbeResult:
    """Return the name, its addresses, the seconds that asking took, and the lines of /etc/hosts that name it."""
    name = socket.gethostname()
    start = time.monotonic()
    addresses = host.resolves(name)
    seconds = time.monotonic() - start
    lines = [
        line.split("#", 1)[0].split()
        for line in (text(where.root / "etc/hosts") or "").splitlines()
        if name in line.split("#", 1)[0].split()[1:]
    ]
    return ProbeResult(
        {
            "name": name,
            "addresses": addresses,
            "ipv6": _sixes(name),
            "seconds": round(seconds, 3),
            "hosts_file": [" ".join(words)[:200] for words in lines[:_LINES]],
        }
    )


_SERVICES = ("firewalld", "ufw", "nftables", "csf", "lfd")


def probe_firewall(where: ProbeTarget) -> ProbeResult:
    """Return ``filters``: firewalls that are on, as far as files and processes show."""
    found = []
    ufw = text(where.root / "etc/ufw/ufw.conf")
    if ufw and any(line.replace(" ", "").lower() == "enabled=yes" for line in ufw.splitlines()):
        found.append("ufw")
    found += sorted(names_of_processes(where, _SERVICES) - set(found))
    seen = ProbeResult({"filters": found})
    for name in ("ip_tables_names", "ip6_tables_names"):
        path = where.root / "proc/net" / name
        try:
            tables = path.read_text().split()
        except FileNotFoundError:
            continue
        except OSError:
            seen.miss("firewall-rules", "denied", path=path)
            break
        if "filter" in tables:
            seen.facts["filters"].append("iptables")
            break
    else:
        # They are read by nft, which is not started here.
        seen.miss("firewall-rules", "nft" if os.geteuid() == 0 else "root")
    return seen
