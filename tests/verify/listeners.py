"""Which TCP sockets processes listen on, as /proc tells."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

_LISTEN = "0A"


def descendants(root: int) -> set[int]:
    """Return a process and what it has started, as far as it still runs."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _sockets(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                name = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))  # noqa: PTH115
                found |= {name[1]} if name else set()
    return found


def _address(text: str) -> str:
    words = [int.from_bytes(bytes.fromhex(text[at : at + 8]), "little") for at in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(word.to_bytes(4, "big") for word in words)))


def listening(root: int) -> set[tuple[str, int]]:
    """Return addresses and ports on which a process and its descendants listen."""
    own = set[str]().union(*(_sockets(pid) for pid in descendants(root)))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTEN and words[9] in own:
                address, _, port = words[1].rpartition(":")
                found.add((_address(address), int(port, 16)))
    return found


@contextlib.contextmanager
def watched(root: int, pause: float = 0.01) -> Iterator[set[tuple[str, int]]]:
    """Yield a set that takes up everything that was listened on meanwhile."""
    seen: set[tuple[str, int]] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(pause):
            seen.update(listening(root))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
