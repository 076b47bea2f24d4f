"""``nvidia-smi --query-gpu=.. --format=csv``: each row with the names of its columns.

``nvidia-smi gpu=00000000:3B:00.0 index=1; ecc.errors.uncorrected.volatile.total: 3; temperature.gpu: 61``
"""

from __future__ import annotations

from nccl_triage.observations.store import SourceInfo
from nccl_triage.patterns import lazily
from nccl_triage.renderings import by_line
from nccl_triage.renderings.form import Rendering

_COLUMN = lazily(r"^[a-z][a-z0-9_.]{0,70}(?: \[[^\]]{0,20}\])?$")
_PLACES = ("pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid", "index")
_KNOWN = (
    *_PLACES, "name", "gpu_name", "timestamp", "driver_version", "pid", "process_name", "count", "serial", "vbios_version",
    "ecc.", "utilization.", "memory.", "temperature.", "clocks", "power.", "retired_pages.", "remapped_rows.", "pcie.",
    "pci.", "fabric.", "used_gpu_memory", "used_memory", "pstate", "compute_mode", "mig.mode.", "gpu_recovery_action",
)  # fmt: skip


def _columns(line: str) -> list[str]:
    """Return the names of the columns of a header; none where the line is no header of nvidia-smi."""
    names = [name.strip() for name in line.split(",")]
    if len(names) < 2 or not all(_COLUMN.match(name) and name.startswith(_KNOWN) for name in names):
        return []
    plain = [name.split(" ")[0] for name in names]
    return plain if any(name in _PLACES for name in plain) else []


def _recognises(name: str, sample: bytes) -> bool:
    first = sample.split(b"\n", 1)[0]
    return len(first) <= by_line.MAX_LINE and b"," in first and bool(_columns(first.decode("utf-8", "replace").strip()))


def _wants(name: str) -> bool:
    return name.endswith(".csv") and "smi" in name.lower()


class _Reader:
    def __init__(self) -> None:
        self._names: list[str] = []

    def change(self, line: str) -> str | None:
        """Return a row with its names, None for what is no row."""
        header = _columns(line.strip())
        if header:
            self._names = header
            return None
        cells = [cell.strip() for cell in line.split(", ")]
        if len(cells) != len(self._names):
            return None
        row = dict(zip(self._names, cells, strict=True))
        place = row.pop("pci.bus_id", None) or row.pop("gpu_bus_id", None) or "-"
        index = f" index={row['index']}" if row.get("index", "").isdigit() else ""
        told = "; ".join(f"{name}: {cell}" for name, cell in row.items() if name != "index")
        return f"nvidia-smi gpu={place}{index}; {told}"


def render(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the table with the names of its columns in each row."""
    return by_line.rewrite(data, _Reader().change)


RENDERING = Rendering("nvidia-smi-csv", by_line.MAX_SIZE, _recognises, render, wants=_wants)
