"""Reachability over TCP between hosts: every address, some ports, three sizes, nothing but the standard library.

A listener accepts on every interface and acknowledges what it gets; a prober connects to each address, sends 64 bytes,
8 KiB and 1 MiB, and then counts losses and measures the throughput (``loss``). What fails, and how, tells no route, a
closed or filtered port, a hole for large packets and loss from one another; each direction is probed by its own sender,
for a narrow link is often narrow one way only. What fails while other ports of the address answer is tried twice. Who
keeps a connection from coming about is found out, too (``refusal``): error numbers are ambiguous.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nccl_triage.hosts.probes import host

from . import loss, refusal

#: Bytes of the messages, smallest first.
SIZES = (64, 8192, 1 << 20)
#: Seconds until a connection or an acknowledgement counts as lost.
PROBE_TIMEOUT = 4.0
#: Answers slower than this between hosts of one job are a finding (seconds).
DELAYED = 0.02
#: Seconds between two looks for connections that were asked for and never came about.
_LOOK = 0.5

_BY_ERRNO = {
    errno.ENETUNREACH: "no-route",
    errno.EHOSTUNREACH: "no-route",
    errno.EINVAL: "no-route",  # a route of the type blackhole
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
                connection.sendall(loss.answer(connection))
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
    """Listen on ``ports`` free ports of every interface, and on ``also``; say where, and answer until stdin ends.

    At the end it says from which addresses a connection was asked for whose answer never arrived there.
    """
    found = []
    for entry in host.interfaces():
        if not entry["up"] or (entry["loopback"] and not loopback):
            continue
        chosen = [port for _ in range(ports) if (port := _listen(entry["address"], 0)) is not None]
        extra = [also] if also and _listen(entry["address"], also) else []
        where = {"interface": entry["name"], "address": entry["address"], "mtu": entry["mtu"]}
        where["mac"] = host.mac(entry["name"])
        found.append({**where, "ports": chosen, "also": extra})
    print(json.dumps(found), flush=True)
    asked: dict[str, int] = {}
    own = frozenset(port for entry in found for port in [*entry["ports"], *entry["also"]])
    threading.Thread(target=_watch, args=(own, asked), daemon=True).start()
    sys.stdin.read()
    # Seen once, a handshake may have been under way.
    print(json.dumps(sorted(address for address, seen in asked.items() if seen > 1)), flush=True)


def _watch(ports: frozenset[int], asked: dict[str, int], table: Path = Path("/proc/net/tcp")) -> None:
    """Count for each address how often a connection that it asked for was seen without the end of its handshake."""
    while True:
        with contextlib.suppress(OSError, ValueError):
            for address in set(loss.half_open(ports, table.read_text())):
                asked[address] = asked.get(address, 0) + 1
        time.sleep(_LOOK)


def _send(connection: socket.socket, size: int) -> float:
    started = time.monotonic()
    loss.send(connection, size)
    loss.receive(connection)
    return time.monotonic() - started


def _kind(error: OSError, done: list[int]) -> str:
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        if not done:
            return "silent"
        # Connected, and not even the smallest message was answered: nothing that its size could explain.
        return "large-packets-lost" if 0 < done[-1] < SIZES[-1] else "no-data"
    return _BY_ERRNO.get(error.errno or 0, "failed")


@dataclass(frozen=True, slots=True)
class Target:
    """A port that is probed; ``others`` are further ports of the address, ``own`` the addresses of this host.

    A thorough probe sends messages, and looks for losses over the other ports, too. ``mac`` is the hardware address of the
    interface that has the address.
    """

    address: str
    port: int
    thorough: bool
    others: Sequence[int] = ()
    own: Collection[str] = ()
    mac: str | None = None


def probe_port(target: Target, timeout: float = PROBE_TIMEOUT) -> dict[str, Any]:
    """Return what happens between here and one port: state, local address, seconds to connect and to be answered."""
    found: dict[str, Any] = {"address": target.address, "port": target.port, "state": "reachable"}
    ports = (target.port, *target.others)
    done: list[int] = []
    started = time.monotonic()
    with socket.socket() as connection:
        connection.settimeout(timeout)
        refusal.keep_errors(connection, True)
        try:
            connection.connect((target.address, target.port))
            refusal.keep_errors(connection, False)
            found["connect_s"] = round(time.monotonic() - started, 4)
            found["local"] = connection.getsockname()[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not target.thorough:
                return found
            done.append(0)
            for size in SIZES:
                found[f"answer_{size}_s"] = round(_send(connection, size), 4)
                done.append(size)
            found.update(_quality(connection, target.address, ports, timeout))
        except OSError as error:
            found["state"] = _kind(error, done)
            found["error"] = errno.errorcode.get(error.errno or 0, type(error).__name__)
            found["answered"] = max(done, default=0)
            if not done:
                found.update(_kept_off(connection, target, found["state"]))
            elif found["state"] == "large-packets-lost":
                found.update(_lossy_after_all(target.address, ports, timeout))
    return found


def _kept_off(connection: socket.socket, target: Target, state: str) -> dict[str, Any]:
    """Return who kept a connection from coming about, where something tells, and the state that this makes of it."""
    by = refusal.said_by(connection, target.address, target.own, target.mac)
    if by is None:
        return {}
    return {"said_by": by, "state": "prohibited" if by == refusal.FILTER and state == "no-route" else state}


def _quality(connection: socket.socket, address: str, ports: Sequence[int], timeout: float) -> dict[str, Any]:
    """Return the state of a path that messages of every size pass: lossy, delayed or reachable, and its numbers."""
    more = loss.lanes_of(address, [*ports[1:], ports[0]], loss.LANES - 1, timeout)
    try:
        test = loss.LossTest([connection, *more])
        lossy = test.run(timeout)
        found = test.numbers()
    finally:
        for lane in more:
            lane.close()
    if test.times:
        found["round_trip_s"] = round(sorted(test.times)[len(test.times) // 2], 5)
    if lossy:
        return {**found, "state": "lossy"}
    found.update(loss.throughput(connection, SIZES[-1]))
    # A busy host is late now and then, a long way always.
    return {**found, "state": "delayed"} if test.times and min(test.times) > DELAYED else found


def _lossy_after_all(address: str, ports: Sequence[int], timeout: float) -> dict[str, Any]:
    """Return the state of a path on which a large message was not answered, if it loses small ones as well."""
    lanes = loss.lanes_of(address, ports, loss.LANES, timeout)
    try:
        test = loss.LossTest(lanes, loss.MESSAGES[:1])
        with contextlib.suppress(OSError):
            if lanes and test.run(timeout):
                return {**test.numbers(), "state": "lossy"}
    finally:
        for lane in lanes:
            lane.close()
    return {}


def probe(targets: list[dict[str, Any]], timeout: float = PROBE_TIMEOUT) -> list[dict[str, Any]]:
    """Probe all targets at once: {host, interface, address, ports}; the first port thoroughly, the others by connecting."""
    jobs = [(target, k) for target in targets for k in range(len(target["ports"]))]
    own = {entry["address"]: entry["name"] for entry in host.interfaces()}

    def one(job: tuple[dict[str, Any], int]) -> dict[str, Any]:
        target, k = job
        address, ports, mac = target["address"], target["ports"], target.get("mac")
        return probe_port(Target(address, ports[k], k == 0, ports[1:] if k == 0 else (), own, mac), timeout)

    with ThreadPoolExecutor(max_workers=min(32, len(jobs) or 1)) as pool:
        found = list(pool.map(one, jobs))
        answers = {result["address"] for result in found if result["state"] == "reachable"}
        doubtful = [k for k, result in enumerate(found) if result["address"] in answers and result["state"] in _AGAIN]
        for k, again in zip(doubtful, pool.map(one, [jobs[k] for k in doubtful]), strict=True):
            found[k] = again
    for (target, _), result in zip(jobs, found, strict=True):
        result["to_host"] = target["host"]
        result["to_interface"] = target["interface"]
        result["by_interface"] = own.get(result.get("local", ""))
        if target.get("kind"):
            result["kind"] = target["kind"]
    return found


#: States that are tried a second time where other ports of the address answer: chance is a poor firewall.
_AGAIN = frozenset({"silent", "refused", "reset", "no-data", "large-packets-lost", "failed"})
