"""How pairs of GPUs are connected: the path between them, and whether they may reach each other's memory."""

from __future__ import annotations

import re
import subprocess
from itertools import combinations
from typing import Any

from nccl_triage.verify import gpu_smi, nvml

#: nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t, nvmlGpuTopologyLevel_t; paths as nvidia-smi topo calls them.
_READ, _WRITE, _NVLINK = 0, 1, 2
_STATUS = (
    "ok",
    "chipset-not-supported",
    "gpu-not-supported",
    "topology-not-supported",
    "disabled-by-regkey",
    "not-supported",
    "unknown",
)
_PATHS = {0: "same-board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
#: What ``nvidia-smi topo -p2p r`` prints.
_TOLD = {"OK": "ok", "CNS": "chipset-not-supported", "GNS": "gpu-not-supported", "TNS": "topology-not-supported"}
_TOLD |= {"DR": "disabled-by-regkey", "NS": "not-supported", "U": "unknown"}
_ROW = re.compile(r"^\s*GPU(\d+)\s+(.*)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def by_library(library: Any, count: int) -> list[dict[str, Any]]:
    """Return every pair of GPUs (indices a < b)."""
    handles = {}
    for index in range(count):
        try:
            handles[index] = library.nvmlDeviceGetHandleByIndex(index)
        except library.NVMLError:
            continue
    found = []
    for a, b in combinations(handles, 2):
        gpu = nvml.Questions(library, handles[a])
        read, write, link = (gpu.ask("nvmlDeviceGetP2PStatus", handles[b], which) for which in (_READ, _WRITE, _NVLINK))
        level = gpu.ask("nvmlDeviceGetTopologyCommonAncestor", handles[b])
        found.append(
            {
                "a": a,
                "b": b,
                "read": _status(read),
                "write": _status(write),
                "nvlink": None if link is None else link == 0,
                "path": None if level is None else _PATHS.get(int(level), f"level-{level}"),
            }
        )
    return found


def _status(code: int | None) -> str | None:
    return None if code is None else _STATUS[code] if code < len(_STATUS) else "unknown"


def by_tool(count: int) -> list[dict[str, Any]]:
    """Return the pairs as nvidia-smi tells them; empty where it does not."""
    try:
        told = subprocess.run(
            ["nvidia-smi", "topo", "-p2p", "r"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=gpu_smi.PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    found = []
    for line in _COLOUR.sub("", told.stdout.decode("utf-8", "replace")).splitlines():
        row = _ROW.match(line)
        cells = row[2].split() if row else []
        if row is None or len(cells) != count:
            continue
        a = int(row[1])
        for b in range(a + 1, count):
            status = _TOLD.get(cells[b])
            found.append({"a": a, "b": b, "read": status, "write": None, "nvlink": None, "path": None})
    return found
