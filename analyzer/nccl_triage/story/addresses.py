"""Network addresses in log lines.

Sources: NCCL ``Bootstrap : Using IFACE:IP<port>`` and ``NET/Socket : Using [0]IFACE:IP<port> [1]..`` (bootstrap.cc,
transport/net_socket.cc); Gloo's connection log, which names its local and remote address.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PAIR = lazily(r"(?P<iface>[A-Za-z][\w.@-]*):(?P<ip>\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:]+(?:%[\w.-]+)?)<\d+>")


def parse(text: object) -> Address | None:
    """Return an address, or None if the text is not one (a host name, or damaged).

    ``::ffff:10.0.0.5``, the form in which dual-stack sockets write IPv4 addresses, becomes that IPv4 address.
    """
    if not isinstance(text, str):
        return None
    try:
        address = ipaddress.ip_address(text.strip("[]").split("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def announced_by(event: Event) -> list[tuple[str, str]]:
    """Return the (interface, address) pairs that an event announces, in the order of preference."""
    return list(_pairs(event.text)) if event.kind == "interface.chosen" else []


@lru_cache(maxsize=1 << 10)
def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((pair["iface"], pair["ip"]) for pair in _PAIR.finditer(text))


def network_of(address: Address) -> str:
    """Return the network that hosts of one segment usually share: /24 for IPv4, /64 for IPv6."""
    length = 64 if address.version == 6 else 24
    return str(ipaddress.ip_network(f"{address}/{length}", strict=False))
