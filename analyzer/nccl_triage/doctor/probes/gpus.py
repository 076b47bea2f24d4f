"""Probe of the GPUs and their driver: what NVML or nvidia-smi report of each GPU and each pair, and what /proc and /dev show otherwise."""

from __future__ import annotations

import ctypes
import re
import subprocess
from dataclasses import asdict
from itertools import combinations
from typing import Any

from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget, entries, names_of_processes, text
from nccl_triage.hosts.probes import gpu_smi, nvml
from nccl_triage.hosts.probes.gpu import Gpu
from nccl_triage.hosts.probes.inventory import likely_present

#: Numbers of nvml.h: kinds of errors and counters, thresholds of temperature, causes of retirement.
_CORRECTED, _UNCORRECTED, _VOLATILE, _AGGREGATE = 0, 1, 0, 1
_SHUTDOWN, _SLOWDOWN = 0, 1
_SINGLE_BIT, _DOUBLE_BIT = 0, 1
_MOST_LINKS = 18
_LINK_ERRORS = {0: "replay", 1: "recovery", 2: "crc_flit", 3: "crc_data"}
#: nvmlClocksEventReasons that slow the GPU down.
_BRAKES = {0x08: "hw-slowdown", 0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "power-brake"}
_FABRIC = {0: None, 1: "not-started", 2: "in-progress", 3: "completed"}
_FIELDS = {
    "bus": "pci.bus_id",
    "temperature": "temperature.gpu",
    "pcie_generation": "pcie.link.gen.current",
    "pcie_generation_max": "pcie.link.gen.max",
    "pcie_width": "pcie.link.width.current",
    "pcie_width_max": "pcie.link.width.max",
    "ecc_aggregate": "ecc.errors.uncorrected.aggregate.total",
}


def details_by_library(library: Any, count: int) -> dict[int, dict[str, Any]]:
    """Return the details of each GPU by index."""
    found = {}
    for index in range(count):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
        except library.NVMLError:
            continue
        found[index] = _details(library, nvml.NvmlQueries(library, handle))
    return found


def _details(library: Any, gpu: nvml.NvmlQueries) -> dict[str, Any]:
    bus = gpu.ask("nvmlDeviceGetPciInfo")
    ecc = gpu.ask("nvmlDeviceGetEccMode")
    rows = gpu.ask("nvmlDeviceGetRemappedRows")
    singles, doubles = (gpu.ask("nvmlDeviceGetRetiredPages", cause) for cause in (_SINGLE_BIT, _DOUBLE_BIT))
    persistence = gpu.ask("nvmlDeviceGetPersistenceMode")
    return {
        "bus": nvml.text(bus.busId).lower() if bus is not None else None,
        "temperature": gpu.ask("nvmlDeviceGetTemperature", 0),
        "temperature_slowdown": gpu.ask("nvmlDeviceGetTemperatureThreshold", _SLOWDOWN),
        "brakes": _brakes(gpu),
        "persistence": None if persistence is None else bool(persistence),
        "pcie_generation": gpu.ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_generation_max": gpu.ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width": gpu.ask("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_width_max": gpu.ask("nvmlDeviceGetMaxPcieLinkWidth"),
        "ecc": None if ecc is None else bool(ecc[0]),
        "ecc_corrected": gpu.ask("nvmlDeviceGetTotalEccErrors", _CORRECTED, _VOLATILE),
        "ecc_aggregate": gpu.ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _AGGREGATE),
        "retired_pages": None if doubles is None else len(doubles) + len(singles or ()),
        "retirement_pending": gpu.ask("nvmlDeviceGetRetiredPagesPendingStatus"),
        "remapped_rows": None if rows is None else int(rows[1]),
        "nvlinks": _links(gpu),
        "fabric": _fabric(library, gpu),
    }


def _brakes(gpu: nvml.NvmlQueries) -> list[str]:
    reasons = gpu.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:  # the name before release 535
        reasons = gpu.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return [name for bit, name in _BRAKES.items() if int(reasons or 0) & bit]


def _links(gpu: nvml.NvmlQueries) -> list[dict[str, Any]]:
    """Return the NVLinks of a GPU that has some: whether each is up, and its errors."""
    found = []
    for link in range(_MOST_LINKS):
        active = gpu.ask("nvmlDeviceGetNvLinkState", link)
        if active is None:
            continue
        errors = {name: gpu.ask("nvmlDeviceGetNvLinkErrorCounter", link, at) for at, name in _LINK_ERRORS.items()}
        found.append({"link": link, "active": bool(active), "errors": {k: v for k, v in errors.items() if v}})
    return found


def _fabric(library: Any, gpu: nvml.NvmlQueries) -> str | None:
    """Return how far the GPU's registration with the fabric is; None for GPUs without one."""
    kind = getattr(library, "c_nvmlGpuFabricInfo_t", None)
    if kind is None:
        return None
    info = kind()
    if gpu.ask("nvmlDeviceGetGpuFabricInfo", ctypes.byref(info)) is None:
        return None
    state = _FABRIC.get(int(info.state))
    return "failed" if state == "completed" and int(info.status) != 0 else state


def details_by_tool() -> dict[int, dict[str, Any]]:
    """Return the details by nvidia-smi, by index; empty where a driver does not know one of the fields."""
    rows, _ = gpu_smi.query(f"--query-gpu=index,{','.join(_FIELDS.values())}")
    found = {}
    for row in rows:
        if len(row) == len(_FIELDS) + 1 and row[0].isdigit():
            cells = dict(zip(_FIELDS, row[1:], strict=True))
            found[int(row[0])] = {
                name: cell.lower() if name == "bus" else int(cell) if cell.isdigit() else None
                for name, cell in cells.items()
            }
    return found


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
_PAIR_ROW = re.compile(r"^\s*GPU(\d+)\s+(.*)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def pairs_by_library(library: Any, count: int) -> list[dict[str, Any]]:
    """Return every pair of GPUs (indices a < b)."""
    handles = {}
    for index in range(count):
        try:
            handles[index] = library.nvmlDeviceGetHandleByIndex(index)
        except library.NVMLError:
            continue
    found = []
    for a, b in combinations(handles, 2):
        gpu = nvml.NvmlQueries(library, handles[a])
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


def pairs_by_tool(count: int) -> list[dict[str, Any]]:
    """Return the pairs by nvidia-smi; empty where it does not answer."""
    try:
        told = subprocess.run(
            ["nvidia-smi", "topo", "-p2p", "r"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=gpu_smi.TOOL_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    found = []
    for line in _COLOUR.sub("", told.stdout.decode("utf-8", "replace")).splitlines():
        row = _PAIR_ROW.match(line)
        cells = row[2].split() if row else []
        if row is None or len(cells) != count:
            continue
        a = int(row[1])
        for b in range(a + 1, count):
            status = _TOLD.get(cells[b])
            found.append({"a": a, "b": b, "read": status, "write": None, "nvlink": None, "path": None})
    return found


_VERSION = re.compile(r"\s(\d{3}\.\d+(?:\.\d+)?)\s")


def probe_gpus(where: ProbeTarget) -> ProbeResult:
    """Return the driver, its GPUs, how pairs of them are connected, and the fabric manager's traces."""
    module = _VERSION.search(f" {text(where.root / 'proc/driver/nvidia/version') or ''} ")
    driver: dict[str, Any] = {"module": module[1] if module else None, "library": None, "cuda": None, "problem": None}
    seen = ProbeResult(
        {
            "driver": driver,
            "source": None,
            "gpus": [],
            "pairs": [],
            "devices": _devices(where, "nvidia"),
            "switches": _devices(where, "nvidia-nvswitch"),
            "manager": bool(names_of_processes(where, ("nv-fabricmanager",))),
        }
    )
    if not likely_present(where.root, where.environment):
        seen.miss("gpus", "no-driver")
        return seen
    inventory = nvml.read()
    details: dict[int, dict[str, Any]] = {}
    if inventory.gpus:
        details, seen.facts["pairs"] = _by_nvml()
    else:
        problem = inventory.problem
        inventory = gpu_smi.read()
        if inventory.gpus:
            seen.miss("gpu-details", "no-nvml", error=problem)
            details, seen.facts["pairs"] = details_by_tool(), pairs_by_tool(len(inventory.gpus))
        else:
            driver["problem"] = f"{problem}; {inventory.problem}"
            seen.miss("gpus", "failed", tool="NVML, nvidia-smi", error=driver["problem"])
    driver["library"], driver["cuda"] = inventory.driver, _cuda(seen)
    seen.facts["source"] = inventory.source or None
    seen.facts["gpus"] = [_gpu(gpu, details.get(gpu.index, {})) for gpu in inventory.gpus]
    return seen


def _devices(where: ProbeTarget, name: str) -> int:
    """Return how many devices of a name with a number behind it there are."""
    found = [entry.name for entry in entries(where.root / "dev") if entry.name.startswith(name)]
    return sum(entry.removeprefix(name).isdigit() for entry in found)


def _gpu(gpu: Gpu, details: dict[str, Any]) -> dict[str, Any]:
    told = asdict(gpu)
    del told["instances"], told["instance"]
    return {**told, "processes": len(gpu.processes), **details}


def _by_nvml() -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]]]:
    library, _ = nvml.load_library()
    try:
        with nvml.session(library):
            count = library.nvmlDeviceGetCount()
            return details_by_library(library, count), pairs_by_library(library, count)
    except library.NVMLError:
        return {}, []


def _cuda(seen: ProbeResult) -> str | None:
    """Return the newest CUDA that the driver supports; asking it needs no GPU and no memory of one."""
    number = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value:
            return f"{number.value // 1000}.{number.value % 1000 // 10}"
    except (OSError, AttributeError) as error:
        seen.miss("driver-cuda", "failed", tool="libcuda.so.1", error=error)
    return None
