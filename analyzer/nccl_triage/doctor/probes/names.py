"""What the host's own name resolves to, and how long the answer takes."""

from __future__ import annotations

import socket
import time

from nccl_triage.doctor.probes.seen import Seen, Where, text
from nccl_triage.verify.worker import host

#: Lines of /etc/hosts that are kept at most.
_LINES = 16


def _sixes(name: str) -> list[str]:
    try:
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET6)})[:_LINES]
    except (OSError, ValueError):
        return []


def probe(where: Where) -> Seen:
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
    return Seen(
        {
            "name": name,
            "addresses": addresses,
            "ipv6": _sixes(name),
            "seconds": round(seconds, 3),
            "hosts_file": [" ".join(words)[:200] for words in lines[:_LINES]],
        }
    )
