"""The machine: its names, kernel, cores, memory, uptime, and whether this is a container."""

from __future__ import annotations

import os
import platform
import socket

from nccl_triage.doctor.probes.seen import Seen, Where, text, uptime


def probe(where: Where) -> Seen:
    """Return what the machine is."""
    memory = _memory(where)
    running = uptime(where.root)
    return Seen(
        {
            "name": socket.gethostname(),
            "kernel": platform.release(),
            "system": _release(where),
            "cores": len(os.sched_getaffinity(0)),
            "memory": memory.get("MemTotal"),
            "available": memory.get("MemAvailable"),
            "swap": memory.get("SwapTotal"),
            "uptime": None if running is None else int(running),
            "container": _container(where),
            "user": os.geteuid(),
        }
    )


def _memory(where: Where) -> dict[str, int]:
    """Return the lines of /proc/meminfo in bytes."""
    found = {}
    for line in (text(where.root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) << (10 if len(words) > 1 else 0)
    return found


def _release(where: Where) -> str | None:
    for line in (text(where.root / "etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return None


def _container(where: Where) -> str | None:
    """Return which kind of container this is as far as it shows, or None."""
    if where.environment.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    for name, kind in ((".dockerenv", "docker"), ("run/.containerenv", "podman"), (".singularity.d", "singularity")):
        if (where.root / name).exists():
            return kind
    return where.environment.get("container") or None
