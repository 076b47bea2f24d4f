"""What a GPU tells of its health beyond ``verify.gpus``: heat, brakes, ECC, retired pages, links, fabric."""

from __future__ import annotations

import ctypes
from typing import Any

from nccl_triage.verify import gpu_smi, nvml

#: Numbers of nvml.h: kinds of errors and counters, thresholds of temperature, causes of retirement.
_CORRECTED, _UNCORRECTED, _VOLATILE, _AGGREGATE = 0, 1, 0, 1
_SHUTDOWN, _SLOWDOWN = 0, 1
_SINGLE_BIT, _DOUBLE_BIT = 0, 1
_MOST_LINKS = 18
_LINK_ERRORS = {0: "replay", 1: "recovery", 2: "crc_flit", 3: "crc_data"}
#: nvmlClocksEventReasons that mean trouble: what slows the GPU down.
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


def by_library(library: Any, count: int) -> dict[int, dict[str, Any]]:
    """Return the details of each GPU by index."""
    found = {}
    for index in range(count):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
        except library.NVMLError:
            continue
        found[index] = _details(library, nvml.Questions(library, handle))
    return found


def _details(library: Any, gpu: nvml.Questions) -> dict[str, Any]:
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


def _brakes(gpu: nvml.Questions) -> list[str]:
    reasons = gpu.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:  # the name before release 535
        reasons = gpu.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return [name for bit, name in _BRAKES.items() if int(reasons or 0) & bit]


def _links(gpu: nvml.Questions) -> list[dict[str, Any]]:
    """Return the NVLinks of a GPU that has some: whether each is up, and its errors."""
    found = []
    for link in range(_MOST_LINKS):
        active = gpu.ask("nvmlDeviceGetNvLinkState", link)
        if active is None:
            continue
        errors = {name: gpu.ask("nvmlDeviceGetNvLinkErrorCounter", link, at) for at, name in _LINK_ERRORS.items()}
        found.append({"link": link, "active": bool(active), "errors": {k: v for k, v in errors.items() if v}})
    return found


def _fabric(library: Any, gpu: nvml.Questions) -> str | None:
    """Return how far the GPU's registration with the fabric is; None for GPUs without one."""
    kind = getattr(library, "c_nvmlGpuFabricInfo_t", None)
    if kind is None:
        return None
    info = kind()
    if gpu.ask("nvmlDeviceGetGpuFabricInfo", ctypes.byref(info)) is None:
        return None
    state = _FABRIC.get(int(info.state))
    return "failed" if state == "completed" and int(info.status) != 0 else state


def by_tool() -> dict[int, dict[str, Any]]:
    """Return what nvidia-smi tells of them, by index; a driver that does not know one of the fields tells nothing."""
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
