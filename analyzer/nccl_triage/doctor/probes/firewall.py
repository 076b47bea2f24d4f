"""Hints of a packet filter: its rules are for root alone, that one is switched on shows nevertheless."""

from __future__ import annotations

from nccl_triage.doctor.probes.processes import names_of_processes
from nccl_triage.doctor.probes.seen import Seen, Where, text

_SERVICES = ("firewalld", "ufw", "nftables", "csf", "lfd")


def probe(where: Where) -> Seen:
    """Return ``filters``: firewalls that are on, as far as files and processes show."""
    found = []
    ufw = text(where.root / "etc/ufw/ufw.conf")
    if ufw and any(line.replace(" ", "").lower() == "enabled=yes" for line in ufw.splitlines()):
        found.append("ufw")
    found += sorted(names_of_processes(where, _SERVICES) - set(found))
    seen = Seen({"filters": found})
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
        seen.miss("firewall-rules", "root")
    return seen
