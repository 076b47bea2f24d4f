"""How much memory a rank may take: a share of what is free, all ranks of the host or of the GPU together."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

#: The share of the free memory that ranks take: of a host less, where others live on what is left.
GPU_SHARE, HOST_SHARE = 0.8, 0.5
#: A host whose free memory nobody knows.
UNKNOWN = 1 << 30


class MemoryRoom(NamedTuple):
    """The bytes that ranks of one memory may take together, and which memory it is: ranks of one GPU or host share it."""

    memory: str
    free: int


def room(torch: Any, device: Any, root: Path = Path("/")) -> MemoryRoom:
    """Return what this rank sees of its memory; call it before any rank takes some."""
    where = _machine(root)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        about = torch.cuda.get_device_properties(device)
        names = ("pci_domain_id", "pci_bus_id", "pci_device_id", "uuid")
        which = "/".join(str(getattr(about, name, "")) for name in names) if hasattr(about, names[1]) else device.index
        return MemoryRoom(f"{where} {which}", int(free * GPU_SHARE))
    return MemoryRoom(where, int(available(root) * HOST_SHARE))


def least(rooms: Sequence[MemoryRoom]) -> int:
    """Return the bytes that every rank may take: those of the most crowded memory, for each of its ranks."""
    sharing = Counter(one.memory for one in rooms)
    return min(one.free // sharing[one.memory] for one in rooms)


def _machine(root: Path) -> str:
    """Return what containers of one machine have in common."""
    with contextlib.suppress(OSError):
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()


def available(root: Path = Path("/")) -> int:
    """Return the bytes that processes of this host, and of this control group, can still take."""
    known = [value for value in (_host(root), *_groups(root)) if value is not None]
    return max(0, min(known)) if known else UNKNOWN


def _host(root: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _groups(root: Path) -> list[int]:
    """Return what is left of the limits of the control groups of this process, as far as it can see them."""
    found = []
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
            names = (
                ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
            )
            own = Path(path.lstrip("/"))
            for folder in (own, *own.parents):  # in a container the path may be that of the host
                found += _left(top / folder, *names)
    return found


def _left(folder: Path, limit: str, used: str) -> list[int]:
    with contextlib.suppress(OSError, ValueError):
        most = int((folder / limit).read_text())  # "max": no number, no limit
        return [most - int((folder / used).read_text()) + _cached(folder)]
    return []


def _cached(folder: Path) -> int:
    """Return the bytes of files that are given back when somebody asks for memory."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (folder / "memory.stat").read_text().splitlines():
            if line.split()[0] in ("inactive_file", "total_inactive_file"):
                return int(line.split()[1])
    return 0
