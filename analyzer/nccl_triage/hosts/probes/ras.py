"""Asks NCCL's RAS on this host what it knows of a running job, as ``ncclras -v`` does, and for its diagnostics.

Every process of NCCL 2.24 and later has a RAS thread that answers while its collectives hang; the protocol is lines of
text (NCCL src/ras/client_support.cc): CLIENT PROTOCOL, TIMEOUT, VERBOSE STATUS, and from 2.31 on DIAGNOSTICS. The report
ends with the connection. Processes of one host share the port, so a stopped one may get the connection: it is tried again.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from . import host

#: Version of the protocol that is spoken; a server of another one is answered in the same way (so does ncclras).
PROTOCOL = 2
#: Seconds that RAS gets to hear its peers, and that one connection gets to begin with, and all of them together.
PEERS, FIRST, WHOLE = 2.0, 1.0, 6.0
#: Bytes of a report at most.
MOST = 256 << 10
_HERE = {"localhost", "127.0.0.1", "::1", "[::1]"}


class _RefusedError(Exception):
    """RAS does not know the command."""


def ask(address: str) -> str:
    """Return RAS's report and, where there are any, its diagnostics; empty where nothing answers or it is elsewhere."""
    name, _, port = address.rpartition(":")
    if name not in _HERE or not port.isdigit() or not 0 < int(port) < 65536:
        return ""
    deadline = time.monotonic() + WHOLE
    parts = []
    for command in ("VERBOSE STATUS", "DIAGNOSTICS"):
        while time.monotonic() < deadline:
            try:
                parts.append(_report((name.strip("[]"), int(port)), command, deadline))
                break
            except TimeoutError:
                continue
            except (OSError, _RefusedError):
                return "".join(parts)
    return "".join(parts)


def _report(where: tuple[str, int], command: str, deadline: float) -> str:
    """Return the answer to one command; raises TimeoutError, OSError, and _RefusedError where it is not known."""
    with socket.create_connection(where, timeout=FIRST) as connection:
        lines = _RasLines(connection)
        if not lines.ask(f"CLIENT PROTOCOL {PROTOCOL}").startswith("SERVER PROTOCOL"):
            raise _RefusedError
        if lines.ask(f"TIMEOUT {PEERS:.0f}") != "OK":
            raise _RefusedError
        connection.settimeout(max(FIRST, min(2 * PEERS + FIRST, deadline - time.monotonic())))
        lines.send(command)
        report = lines.rest(deadline)
        if report.startswith(("ERROR:", "BUSY:")):
            raise _RefusedError
        return report


class _RasLines:
    """The lines of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._buffer = connection, b""

    def send(self, line: str) -> None:
        self._connection.sendall(line.encode() + b"\n")

    def ask(self, line: str) -> str:
        self.send(line)
        while b"\n" not in self._buffer:
            data = self._connection.recv(4096)
            if not data or len(self._buffer) > MOST:
                raise _RefusedError
            self._buffer += data
        first, _, self._buffer = self._buffer.partition(b"\n")
        return first.decode(errors="replace").strip()

    def rest(self, deadline: float) -> str:
        """Return what comes until the other end closes the connection, or refuses the command, or time is up."""
        data = self._buffer
        while len(data) < MOST and time.monotonic() < deadline:
            if data.startswith((b"ERROR:", b"BUSY:")) and b"\n" in data:
                break  # after an unknown command the connection stays open
            try:
                more = self._connection.recv(65536)
            except TimeoutError:
                if not data:
                    raise
                break
            if not more:
                break
            data += more
        return data[:MOST].decode(errors="replace")


def variables(spec: dict[str, Any]) -> dict[str, str]:
    """Return the variables that give the ranks of a run a RAS port of their own; a job here may have the usual one."""
    if spec.get("backend") != "nccl":
        return {}
    asked = spec.get("env", {}).get("NCCL_RAS_ADDR")
    return {"NCCL_RAS_ADDR": str(asked) if asked else f"localhost:{host.free_port('127.0.0.1')}"}
