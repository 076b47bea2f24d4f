"""Reachability over TCP between hosts: every address, some ports, three sizes, nothing but the standard library.

A listener accepts on every interface and acknowledges what it gets; a prober connects to each address and sends
64 bytes, 8 KiB and 1 MiB. What fails, and how, tells no route, a closed or filtered port, a hole for large packets and
loss from one another; each direction is probed by its own sender, for a narrow link is often narrow one way only.
"""

from __future__ import annotations

import errno
import json
import socket
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import host

#: Bytes of the messages, smallest first.
SIZES = (64, 8192, 1 << 20)
#: Seconds until a connection or an acknowledgement counts as lost.
PROBE_TIMEOUT = 4.0
#: Small messages in a row from which loss and delay are read.
ECHOES = 24
#: Segments that the kernel sent again, of the thousand or so of a probe, from which on a path counts as lossy.
SENT_AGAIN = 5
#: Offset of tcpi_total_retrans in the kernel's struct tcp_info (linux/tcp.h).
_TOTAL_RETRANS = 100
#: Answers slower than this between hosts of one job are a finding (seconds).
DELAYED = 0.02

_BY_ERRNO = {
    errno.ENETUNREACH: "no-route",
    errno.EHOSTUNREACH: "no-route",
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.ECONNABORTED: "reset",
    errno.EACCES: "prohibited",
    errno.EPERM: "prohibited",
}


def _answer(connection: socket.socket) -> None:
    connection.settimeout(30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        with connection:
            while True:
                head = connection.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return
                left = struct.unpack("!I", head)[0]
                if left > SIZES[-1]:
                    return
                while left:
                    data = connection.recv(min(65536, left))
                    if not data:
                        return
                    left -= len(data)
                connection.sendall(b"ok")
    except OSError:
        return


def _accept(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _listen(address: str, port: int) -> int | None:
    """Listen on a port (0: any) and return it, or None when something else does already."""
    server = socket.socket()
    try:
        server.bind((address, port))
        server.listen(64)
    except OSError:
        server.close()
        return None
    threading.Thread(target=_accept, args=(server,), daemon=True).start()
    return int(server.getsockname()[1])


def serve(ports: int, loopback: bool, also: int = 0) -> None:
    """Listen on ``ports`` free ports of every interface, and on ``also``; say where, and answer until stdin ends."""
    found = []
    for entry in host.interfaces():
        if not entry["up"] or (entry["loopback"] and not loopback):
            continue
        chosen = [port for _ in range(ports) if (port := _listen(entry["address"], 0)) is not None]
        extra = [also] if also and _listen(entry["address"], also) else []
        where = {"interface": entry["name"], "address": entry["address"], "mtu": entry["mtu"]}
        found.append({**where, "ports": chosen, "also": extra})
    print(json.dumps(found), flush=True)
    sys.stdin.read()


def _send(connection: socket.socket, size: int) -> float:
    started = time.monotonic()
    connection.sendall(struct.pack("!I", size) + b"x" * size)
    if connection.recv(2, socket.MSG_WAITALL) != b"ok":
        raise ConnectionResetError(errno.ECONNRESET, "closed")
    return time.monotonic() - started


def _retransmissions(connection: socket.socket) -> int:
    """Return how many segments the kernel has sent again on a connection."""
    about = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANS + 4)
    return int(struct.unpack_from("I", about, _TOTAL_RETRANS)[0]) if len(about) >= _TOTAL_RETRANS + 4 else 0


def _kind(error: OSError, done: list[int]) -> str:
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        if not done:
            return "silent"
        # Connected, and not even the smallest message was answered: nothing that its size could explain.
        return "large-packets-lost" if 0 < done[-1] < SIZES[-1] else "no-data"
    return _BY_ERRNO.get(error.errno or 0, "failed")


def probe_port(address: str, port: int, thorough: bool, timeout: float = PROBE_TIMEOUT) -> dict[str, Any]:
    """Return what happens between here and one port: state, local address, seconds to connect and to be answered."""
    found: dict[str, Any] = {"address": address, "port": port, "state": "reachable"}
    done: list[int] = []
    started = time.monotonic()
    try:
        with socket.create_connection((address, port), timeout=timeout) as connection:
            found["connect_s"] = round(time.monotonic() - started, 4)
            found["local"] = connection.getsockname()[0]
            connection.settimeout(timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not thorough:
                return found
            done.append(0)
            for size in SIZES:
                found[f"answer_{size}_s"] = round(_send(connection, size), 4)
                done.append(size)
            times = [_send(connection, SIZES[0]) for _ in range(ECHOES)]
            again = _retransmissions(connection)
    except OSError as error:
        found["state"] = _kind(error, done)
        found["error"] = errno.errorcode.get(error.errno or 0, type(error).__name__)
        found["answered"] = max(done, default=0)
        return found
    found["round_trip_s"] = round(sorted(times)[len(times) // 2], 5)
    found["sent_again"] = again
    if again >= SENT_AGAIN:
        found["state"] = "lossy"
    elif min(times) > DELAYED:  # a busy host is late now and then, a long way always
        found["state"] = "delayed"
    return found


def probe(targets: list[dict[str, Any]], timeout: float = PROBE_TIMEOUT) -> list[dict[str, Any]]:
    """Probe all targets at once: {host, interface, address, ports}; the first port thoroughly, the others by connecting."""
    jobs = [(target, port, k == 0) for target in targets for k, port in enumerate(target["ports"])]
    own = {entry["address"]: entry["name"] for entry in host.interfaces()}
    with ThreadPoolExecutor(max_workers=min(32, len(jobs) or 1)) as pool:
        found = list(pool.map(lambda job: probe_port(job[0]["address"], job[1], job[2], timeout), jobs))
    for (target, _, _), result in zip(jobs, found, strict=True):
        result["to_host"] = target["host"]
        result["to_interface"] = target["interface"]
        result["by_interface"] = own.get(result.get("local", ""))
        if target.get("kind"):
            result["kind"] = target["kind"]
    return found
