"""Probes of the machine: its names, kernel, cores, memory, uptime and container, and whether its clock is synchronised."""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import time

from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget, text, uptime


def probe_system(where: ProbeTarget) -> ProbeResult:
    """Return what the machine is."""
    memory = _memory(where)
    running = uptime(where.root)
    return ProbeResult(
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


def _memory(where: ProbeTarget) -> dict[str, int]:
    """Return the lines of /proc/meminfo in bytes."""
    found = {}
    for line in (text(where.root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) << (10 if len(words) > 1 else 0)
    return found


def _release(where: ProbeTarget) -> str | None:
    for line in (text(where.root / "etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return None


def _container(where: ProbeTarget) -> str | None:
    """Return which kind of container this is as far as it shows, or None."""
    if where.environment.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    for name, kind in ((".dockerenv", "docker"), ("run/.containerenv", "podman"), (".singularity.d", "singularity")):
        if (where.root / name).exists():
            return kind
    return where.environment.get("container") or None


#: The state in which nobody disciplines the clock (adjtimex(2)).
_UNSYNCHRONISED, _NANOSECONDS = 0x0040, 0x2000


class _Timex(ctypes.Structure):
    """The first fields of struct timex, and room for all others (208 bytes on 64-bit machines)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def probe_clock(where: ProbeTarget) -> ProbeResult:
    """Return what the kernel says of its clock; ``offset`` and ``error`` in seconds, ``time`` since the epoch."""
    seen = ProbeResult({"time": time.time(), "synchronised": None, "offset": None, "error": None})
    asked = _Timex()  # modes 0: a question
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
        if call(ctypes.byref(asked)) == -1:
            raise OSError(ctypes.get_errno(), "adjtimex")
    except (OSError, AttributeError) as error:
        seen.miss("clock", "failed", tool="adjtimex", error=error)
        return seen
    unit = 1e-9 if asked.status & _NANOSECONDS else 1e-6
    seen.facts["synchronised"] = not asked.status & _UNSYNCHRONISED
    seen.facts["offset"] = round(asked.offset * unit, 9)
    seen.facts["error"] = round(asked.maxerror * 1e-6, 6)
    return seen
