"""What nvidia-smi says of this host's GPUs: how many, which, and whether somebody uses them. Nothing is imported."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

_ABOUT = ("index", "name", "memory.total", "memory.used", "utilization.gpu")
_MIB = 1 << 20


def _ask(query: str) -> list[list[str]]:
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def listed() -> list[dict[str, Any]]:
    """Return the GPUs of this host with bytes of memory, percent of use and the number of processes on any of them."""
    if shutil.which("nvidia-smi") is None:
        return []
    processes = len(_ask("--query-compute-apps=pid"))
    found = []
    for row in _ask(f"--query-gpu={','.join(_ABOUT)}"):
        if len(row) == len(_ABOUT) and row[0].isdigit():
            numbers = [int(cell) if cell.isdigit() else 0 for cell in row[2:]]
            found.append(
                {
                    "index": int(row[0]),
                    "name": row[1],
                    "total": numbers[0] * _MIB,
                    "used": numbers[1] * _MIB,
                    "percent": numbers[2],
                    "processes": processes,
                }
            )
    return found
