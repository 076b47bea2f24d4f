"""Limits of this process and its cgroup: open files, locked memory, processes, /dev/shm, memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

from nccl_triage.doctor.probes.seen import Seen, Where, number, text

_NAMES = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC}
#: What version 1 says for "no limit": the largest number of pages.
_ENDLESS = 1 << 60


def probe(where: Where) -> Seen:
    """Return the limits in bytes or numbers; None is without limit."""
    seen = Seen({name: _limit(number) for name, number in _NAMES.items()})
    seen.facts["shm"] = _shared_memory(where, seen)
    seen.facts["cgroup"] = _cgroup(where, seen)
    seen.facts["threads_max"] = number(where.root / "proc/sys/kernel/threads-max")
    return seen


def _limit(which: int) -> dict[str, int | None]:
    soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(which))
    return {"soft": soft, "hard": hard}


def _shared_memory(where: Where, seen: Seen) -> dict[str, int] | None:
    path = where.root / "dev/shm"
    try:
        about = os.statvfs(path)
    except OSError as error:
        seen.denied("shm", path, error)
        return None
    return {"size": about.f_frsize * about.f_blocks, "free": about.f_frsize * about.f_bavail}


def _cgroup(where: Where, seen: Seen) -> dict[str, Any] | None:
    """Return the tightest limits between this process's group and the root of those that can be seen."""
    own = {}
    for line in (text(where.root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2) if line.count(":") > 1 else ("", "", "")
        for controller in controllers.split(","):
            own[controller] = path.lstrip("/")
    base = where.root / "sys/fs/cgroup"
    if "memory" in own and (base / "memory").is_dir():
        memory = _tightest(base / "memory", own["memory"], "memory.limit_in_bytes")
        pids = _tightest(base / "pids", own.get("pids", ""), "pids.max")
        files = ("memory.usage_in_bytes", "memory.oom_control", "pids.current")
        return _told(1, memory, pids, files)
    if "" in own and (base / "cgroup.controllers").exists():
        memory, pids = _tightest(base, own[""], "memory.max"), _tightest(base, own[""], "pids.max")
        return _told(2, memory, pids, ("memory.current", "memory.events", "pids.current"))
    seen.miss("cgroup", "absent", path=base)
    return None


def _tightest(base: Path, below: str, name: str) -> tuple[int | None, Path]:
    """Return the smallest limit of a group and of those above it, with the folder that has it."""
    folder = base / below
    if not folder.is_dir():  # a container has its own group for a root
        folder = base
    found: tuple[int | None, Path] = (None, folder)
    while True:
        limit = number(folder / name)
        if limit is not None and limit < _ENDLESS and (found[0] is None or limit < found[0]):
            found = limit, folder
        if folder == base:
            return found
        folder = folder.parent


def _told(
    version: int,
    memory: tuple[int | None, Path],
    pids: tuple[int | None, Path],
    files: tuple[str, str, str],
) -> dict[str, Any]:
    used, events, processes = files
    kills = None
    for line in (text(memory[1] / events) or "").splitlines():
        if line.startswith("oom_kill "):
            kills = int(line.split()[1])
    return {
        "version": version,
        "memory_max": memory[0],
        "memory_used": number(memory[1] / used),
        "oom_kills": kills,
        "pids_max": pids[0],
        "pids_used": number(pids[1] / processes),
    }
