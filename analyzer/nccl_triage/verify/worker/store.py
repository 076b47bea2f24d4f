"""The store at which ranks meet: rank 0 listens on the address that the others are told, and on no other.

torch's TCPStore listens on every interface, where anybody may connect to it, unless it is handed a socket.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from datetime import timedelta
from typing import Any

from nccl_triage.hosts.probes import host

#: The release from which the default backend of TCPStore takes a socket (pytorch pull request 150215).
_TAKES_SOCKETS = (2, 8)
_BACKLOG = 2048


def tcp_store(dist: Any, where: dict[str, Any], world: int, rank: int, limit: timedelta) -> Any:
    """Return the store at ``where``: {host, port}; whatever fails is reported by torch as in any training job."""
    import torch

    given = (where["host"], int(where["port"]), world, rank == 0, limit, True)
    listener = _listener(given[0], given[1]) if rank == 0 else None
    if listener is None:
        return dist.TCPStore(*given)
    descriptor = listener.detach()  # torch closes it, in a failure, too
    for extra in _extras(torch.__version__):
        try:
            return dist.TCPStore(*given, master_listen_fd=descriptor, **extra)
        except TypeError:  # a release without these parameters
            continue
    os.close(descriptor)
    return dist.TCPStore(*given)


def _extras(version: str) -> list[dict[str, Any]]:
    """Return further arguments to try: between 2.4 and 2.7 only the older backend takes a socket, 2.0 has no other."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return [{}] if numbers >= _TAKES_SOCKETS else [{"use_libuv": False}, {}]


def _listener(address: str, port: int) -> socket.socket | None:
    """Return a socket that listens on one address; None where that is torch's own affair.

    That is a name, which other hosts may resolve to another address than this one; an address that this host knows nothing
    of (behind NAT); and a port that another program has on any address, of which torch shall complain in its own words.
    """
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    except ValueError:
        return None
    if host.port_free(port) is not None:
        return None
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        return None
    return listener
