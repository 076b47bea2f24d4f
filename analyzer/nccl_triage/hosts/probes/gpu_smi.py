"""GPUs as nvidia-smi reports them, for hosts without the package nvidia-ml-py; read-only queries.

A driver refuses a whole query for one field that it does not know, so only fields that all drivers know are asked
together. What a GPU does not support reads ``[N/A]`` or ``[Not Supported]`` and becomes None.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from .gpu import Gpu, GpuProcess, Inventory, pci_address
from .host import die_with_parent

#: Seconds that nvidia-smi may take; it hangs when the driver does.
TOOL_TIMEOUT = 30.0
_TOOL = "nvidia-smi"
_FIELDS = (
    "index,uuid,name,memory.total,memory.used,memory.free,utilization.gpu,compute_mode,"
    "ecc.errors.uncorrected.volatile.total,pci.bus_id,driver_version"
)
_MIB = 1 << 20
#: ``GPU 0: NVIDIA A100 (UUID: GPU-..)`` and, below it, ``  MIG 3g.20gb     Device  0: (UUID: MIG-..)`` of ``nvidia-smi -L``.
_LISTED = re.compile(r"^(?:GPU \d+:|\s+MIG ).*\(UUID: ((?:GPU|MIG)-[^)\s]+)\)\s*$")


def read() -> Inventory:
    """Return all GPUs of this host, or why none can be seen; never raises."""
    if shutil.which(_TOOL) is None:
        return Inventory(problem=f"{_TOOL} is not on PATH")
    rows, problem = query(f"--query-gpu={_FIELDS}")
    if problem:
        return Inventory(problem=problem)
    complete = [row for row in rows if len(row) == len(_FIELDS.split(",")) and row[0].isdigit()]
    if not complete:
        return Inventory(problem=f"{_TOOL} lists no GPU", source=_TOOL)
    more = _more()
    return Inventory(tuple(_gpu(row, more) for row in complete), complete[0][-1], None, _TOOL)


def utilisation() -> dict[int, int | None]:
    """Return percent busy by index, as measured now; empty when the tool does not answer."""
    if shutil.which(_TOOL) is None:
        return {}
    rows, _ = query("--query-gpu=index,utilization.gpu")
    return {int(row[0]): _number(row[1]) for row in rows if len(row) == 2 and row[0].isdigit()}


def query(question: str) -> tuple[list[list[str]], str]:
    """Return the rows of an answer as cells, or none and why."""
    output, problem = _said(question, "--format=csv,noheader,nounits")
    return [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.strip()], problem


def _said(*words: str) -> tuple[str, str]:
    """Return what the tool prints, or nothing and why."""
    try:
        process = subprocess.Popen(
            [_TOOL, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    except OSError as error:
        return "", f"{_TOOL} cannot be run ({error.strerror})"
    try:
        output, _ = process.communicate(timeout=TOOL_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)  # within a hung call of the driver it cannot even die
        return "", f"{_TOOL} gave no answer within {TOOL_TIMEOUT:.0f} s: the driver hangs"
    if process.returncode != 0:
        first = next((line.strip() for line in output.splitlines() if line.strip()), "no message")
        return "", f"{_TOOL} failed ({process.returncode}): {first}"
    return output, ""


class _More:
    """What is asked for separately, by UUID."""

    def __init__(self) -> None:
        self.mig: dict[str, str] = {}
        self.recovery: dict[str, str] = {}
        self.remapped: dict[str, list[str]] = {}
        self.processes: dict[str, list[GpuProcess]] = {}
        self.instances: dict[str, list[str]] = {}


def _more() -> _More:
    more = _More()
    more.mig = _pairs("--query-gpu=uuid,mig.mode.current")
    more.recovery = _pairs("--query-gpu=uuid,gpu_recovery_action")
    for row in query("--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure")[0]:
        if len(row) == 3:
            more.remapped[row[0]] = row[1:]
    for row in query("--query-compute-apps=gpu_uuid,pid,used_gpu_memory")[0]:
        if len(row) == 3 and row[1].isdigit():
            more.processes.setdefault(row[0], []).append(GpuProcess(int(row[1]), _bytes(row[2])))
    if any(_yes(mode) for mode in more.mig.values()):
        more.instances = _instances(_said("-L")[0])
    return more


def _instances(listed: str) -> dict[str, list[str]]:
    """Return the UUIDs of the MIG instances of each GPU."""
    found: dict[str, list[str]] = {}
    own: list[str] = []
    for match in filter(None, map(_LISTED.match, listed.splitlines())):
        if match[1].startswith("GPU-"):
            own = found.setdefault(match[1], [])
        else:
            own.append(match[1])
    return found


def _pairs(question: str) -> dict[str, str]:
    return {row[0]: row[1] for row in query(question)[0] if len(row) == 2}


def _number(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None


def _bytes(cell: str) -> int | None:
    number = _number(cell)
    return None if number is None else number * _MIB


def _told(cell: str | None) -> str | None:
    """Return a cell as a word of ours (``Drain and Reset`` is drain-and-reset), None for what is not supported."""
    if not cell or re.search(r"N/A|Not Supported|Insufficient|Unknown|Not Found", cell, re.IGNORECASE):
        return None
    return cell.lower().replace(" ", "-").replace("_", "-")


def _yes(cell: str | None) -> bool | None:
    word = _told(cell)
    return None if word is None else word not in ("no", "0", "disabled", "none")


def _fault(row: Sequence[str]) -> str | None:
    text = " ".join(row).lower()
    if "gpu is lost" in text:
        return "lost"
    return "reset-required" if "requires reset" in text else None


def _gpu(row: Sequence[str], more: _More) -> Gpu:
    cells: Mapping[str, str] = dict(zip(_FIELDS.split(","), row, strict=True))
    uuid = cells["uuid"]
    mode = _told(cells["compute_mode"])
    pending, failure = more.remapped.get(uuid, (None, None))
    return Gpu(
        index=int(cells["index"]),
        uuid=uuid,
        name=cells["name"],
        memory_total=_bytes(cells["memory.total"]),
        memory_used=_bytes(cells["memory.used"]),
        memory_free=_bytes(cells["memory.free"]),
        utilisation=_number(cells["utilization.gpu"]),
        processes=tuple(more.processes.get(uuid, ())),
        compute_mode=mode,
        mig=_yes(more.mig.get(uuid)),
        recovery_action=_told(more.recovery.get(uuid)),
        ecc_uncorrected=_number(cells["ecc.errors.uncorrected.volatile.total"]),
        remap_pending=_yes(pending),
        remap_failure=_yes(failure),
        fault=_fault([*row, more.recovery.get(uuid, "")]),
        bus=pci_address(cells["pci.bus_id"]),
        instances=tuple(more.instances.get(uuid, ())),
    )
