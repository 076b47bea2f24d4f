"""The result of a probe, the host that it looks at, and the readers of /proc and /sys that all probes use."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Files below /proc and /sys are small; a root given by tests may hold anything.
_MOST_BYTES = 1 << 20


#: Why root cannot see what others cannot see for want of root.
_AS_ROOT = {"denied": "refused", "root": "hidden"}


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """The host to examine: its files and variables, the ``python`` whose torch is queried, and relevant ``paths``."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    paths: Sequence[str] = ()
    timeout_factor: float = 1.0


@dataclass(slots=True)
class ProbeResult:
    """Facts, as plain data, and what could not be seen: ``what`` and ``why`` are words of ``doctor.text``."""

    facts: Any
    unseen: list[dict[str, str]] = field(default_factory=list)

    def miss(self, what: str, why: str, **values: object) -> None:
        """Note something that could not be seen; who is root is not told to become root."""
        if os.geteuid() == 0:
            why = _AS_ROOT.get(why, why)
        self.unseen.append({"what": what, "why": why, **{name: str(value)[:300] for name, value in values.items()}})

    def denied(self, what: str, path: object, error: OSError) -> None:
        """Note a file that could not be read."""
        words = {errno.ENOENT: "absent", errno.EACCES: "denied", errno.EPERM: "denied"}
        why = words.get(error.errno or 0, "unreadable")
        self.miss(what, why, path=path, error=error.strerror or type(error).__name__)


def text(path: Path) -> str | None:
    """Return the beginning of a file without white space around it, or None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """Return the whole number that a file holds, or None."""
    found = text(path)
    try:
        return int(found, 0) if found else None
    except ValueError:
        return None


def uptime(root: Path) -> float | None:
    """Return the seconds since boot, or None."""
    try:
        return float((text(root / "proc/uptime") or "").split()[0])
    except (ValueError, IndexError):
        return None


def entries(folder: Path) -> list[Path]:
    """Return what a folder holds, in the order of the numbers in its names; empty where it cannot be read."""
    try:
        return sorted(folder.iterdir(), key=lambda entry: [(len(part), part) for part in entry.name.split("_")])
    except OSError:
        return []


#: Characters of a process's name that the kernel keeps.
_KEPT = 15


def names_of_processes(where: ProbeTarget, wanted: Collection[str]) -> set[str]:
    """Return which of the names some process has."""
    short = {name[:_KEPT]: name for name in wanted}
    found = set()
    for entry in entries(where.root / "proc"):
        if entry.name.isdigit():
            name = text(entry / "comm")
            if name in short:
                found.add(short[name])
    return found
