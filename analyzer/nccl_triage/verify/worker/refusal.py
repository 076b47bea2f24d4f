"""Who keeps a connection from coming about: this host's own routing table, its neighbour, a gateway, or a filter.

An error number alone does not tell: the kernel gives EHOSTUNREACH for a route of the type "unreachable", for a neighbour
that answers no ARP, and for a filter's reject. The routing table is asked by connecting a datagram socket, which sends
nothing; who sent an ICMP error and with which code, the kernel tells on the error queue of the socket (ip(7), IP_RECVERR).
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Collection
from pathlib import Path

#: Option of a socket whose errors are kept with their origin (linux/in.h), and of an error that came by ICMP
#: (linux/errqueue.h): its origin, and its type "destination unreachable".
_RECVERR, _ICMP, _UNREACHABLE = 11, 2, 3
#: Codes of "destination unreachable" that only a filter sends: communication is prohibited (RFC 1122, RFC 1812).
_PROHIBITED = frozenset({9, 10, 13})
#: struct sock_extended_err, and the address of who reported the error behind it (linux/errqueue.h).
_ERROR, _ADDRESS = struct.Struct("=IBBB"), slice(20, 24)
#: Flags of an entry of /proc/net/arp (linux/if_arp.h): it is complete; somebody wrote it and it does not expire.
_COMPLETE, _PERMANENT = 0x2, 0x4

#: What can be said of who keeps a connection from coming about.
OWN_ROUTE, WRONG_NEIGHBOUR, NO_NEIGHBOUR, GATEWAY, FILTER = (
    "own-route",
    "wrong-neighbour",
    "no-neighbour",
    "gateway",
    "filter",
)


def keep_errors(connection: socket.socket, keep: bool) -> None:
    """Keep the errors of a socket with their origin; an established connection must not, it would end at the first."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_IP, _RECVERR, int(keep))


def said_by(
    connection: socket.socket, address: str, own: Collection[str], mac: str | None = None, arp: Path | None = None
) -> str | None:
    """Return who keeps a socket, whose errors were kept, from an address; None where nothing tells.

    ``own`` are the addresses of this host, ``mac`` is the hardware address of the interface that is to be reached.
    """
    if not _has_route(address):
        return OWN_ROUTE
    told = _icmp(connection)
    if told is not None:
        code, origin = told
        # Who is reached and says no has a route, and so have its answers.
        if code in _PROHIBITED or origin == address:
            return FILTER
        return NO_NEIGHBOUR if origin in own else GATEWAY
    return _neighbour(address, mac, arp or Path("/proc/net/arp"))


def _has_route(address: str) -> bool:
    """Tell whether this host's own routing table leads to an address; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((address, 9))
        except OSError as error:
            # A missing route, and routes of the types unreachable, prohibit and blackhole (ip-route(8)).
            return error.errno not in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL)
    return True


def _icmp(connection: socket.socket) -> tuple[int, str] | None:
    """Return the code of the ICMP error that ended a connection, and the address of who sent it; None where none came."""
    connection.setblocking(False)  # with a timeout the queue would be waited for
    with contextlib.suppress(OSError):
        _, told, _, _ = connection.recvmsg(512, 512, socket.MSG_ERRQUEUE)
        for level, kind, data in told:
            if (level, kind) != (socket.IPPROTO_IP, _RECVERR) or len(data) < _ADDRESS.stop:
                continue
            _, origin, number, code = _ERROR.unpack_from(data)
            if (origin, number) == (_ICMP, _UNREACHABLE):
                return code, socket.inet_ntoa(data[_ADDRESS])
    return None


def _neighbour(address: str, mac: str | None, table: Path) -> str | None:
    """Return what is wrong with the neighbour's entry of an address on a link of this host, None where nothing is."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in table.read_text().splitlines()[1:]:
            words = line.split()
            if words[0] != address:
                continue
            flags = int(words[2], 16)
            if not flags & _COMPLETE:
                return NO_NEIGHBOUR
            # A network may answer ARP for its hosts; what somebody wrote down must be true.
            if flags & _PERMANENT and mac is not None and words[3].lower() != mac.lower():
                return WRONG_NEIGHBOUR
    return None
