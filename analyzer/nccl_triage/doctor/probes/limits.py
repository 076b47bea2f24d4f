"""Probes of limits: those of this process and its cgroup, /dev/shm, and the free space of the file systems that a job writes to."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path
from typing import Any

from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget, number, text

_NAMES = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC}
#: What version 1 says for "no limit": the largest number of pages.
_ENDLESS = 1 << 60


def probe_limits(where: ProbeTarget) -> ProbeResult:
    """Return the limits in bytes or numbers; None is without limit."""
    seen = ProbeResult({name: _limit(number) for name, number in _NAMES.items()})
    seen.facts["shm"] = _shared_memory(where, seen)
    seen.facts["cgroup"] = _cgroup(where, seen)
    seen.facts["threads_max"] = number(where.root / "proc/sys/kernel/threads-max")
    return seen


def _limit(which: int) -> dict[str, int | None]:
    soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(which))
    return {"soft": soft, "hard": hard}


def _shared_memory(where: ProbeTarget, seen: ProbeResult) -> dict[str, int] | None:
    path = where.root / "dev/shm"
    try:
        about = os.statvfs(path)
    except OSError as error:
        seen.denied("shm", path, error)
        return None
    return {"size": about.f_frsize * about.f_blocks, "free": about.f_frsize * about.f_bavail}


def _cgroup(where: ProbeTarget, seen: ProbeResult) -> dict[str, Any] | None:
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
        return _cgroup_facts(1, memory, pids, files)
    if "" in own and (base / "cgroup.controllers").exists():
        memory, pids = _tightest(base, own[""], "memory.max"), _tightest(base, own[""], "pids.max")
        return _cgroup_facts(2, memory, pids, ("memory.current", "memory.events", "pids.current"))
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


def _cgroup_facts(
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


#: Seconds that one file system may take to answer.
FILE_SYSTEM_TIMEOUT = 3.0
_READ_ONLY = 1


def probe_storage(where: ProbeTarget) -> ProbeResult:
    """Return size, free bytes, free share of inodes and mode of each path, once a file system."""
    paths = ["/", "/tmp", *where.paths]
    if home := where.environment.get("HOME"):
        paths.append(home)
    found: dict[str, dict[str, Any] | OSError] = {}
    threads = []
    for path in dict.fromkeys(paths):
        thread = threading.Thread(target=_ask_file_system, args=(where.root, path, found), daemon=True)
        thread.start()
        threads.append((path, thread))
    seen = ProbeResult([])
    known = set()
    for path, thread in threads:
        thread.join(FILE_SYSTEM_TIMEOUT * where.timeout_factor)
        answer = found.get(path)
        if answer is None:
            seen.facts.append({"path": path, "hangs": True})
        elif isinstance(answer, OSError):
            seen.denied("storage", path, answer)
        elif answer["device"] not in known:
            known.add(answer.pop("device"))
            seen.facts.append({"path": path, "hangs": False, **answer})
    return seen


def _ask_file_system(root: Path, path: str, found: dict[str, dict[str, Any] | OSError]) -> None:
    place = root / path.lstrip("/")
    try:
        about = os.statvfs(place)
        found[path] = {
            "device": place.stat().st_dev,
            "size": about.f_frsize * about.f_blocks,
            "free": about.f_frsize * about.f_bavail,
            "inodes_free": round(about.f_favail / about.f_files, 4) if about.f_files else None,
            "read_only": bool(about.f_flag & _READ_ONLY),
        }
    except OSError as error:
        found[path] = error
