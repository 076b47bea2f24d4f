"""The GPUs and their driver: what NVML or nvidia-smi tell; where neither answers, what /proc and /dev still show."""

from __future__ import annotations

import ctypes
import re
from dataclasses import asdict
from typing import Any

from nccl_triage.doctor.probes import gpu_details, gpu_pairs
from nccl_triage.doctor.probes.processes import names_of_processes
from nccl_triage.doctor.probes.seen import Seen, Where, entries, text
from nccl_triage.verify import gpu_nvml, gpu_smi, gpus, nvml
from nccl_triage.verify.gpu import Gpu

_VERSION = re.compile(r"\s(\d{3}\.\d+(?:\.\d+)?)\s")


def probe(where: Where) -> Seen:
    """Return the driver, its GPUs, how pairs of them are connected, and the fabric manager's traces."""
    module = _VERSION.search(f" {text(where.root / 'proc/driver/nvidia/version') or ''} ")
    driver: dict[str, Any] = {"module": module[1] if module else None, "library": None, "cuda": None, "problem": None}
    seen = Seen(
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
    if not gpus.likely_present(where.root, where.environment):
        seen.miss("gpus", "no-driver")
        return seen
    inventory = gpu_nvml.read()
    details: dict[int, dict[str, Any]] = {}
    if inventory.gpus:
        details, seen.facts["pairs"] = _by_nvml()
    else:
        problem = inventory.problem
        inventory = gpu_smi.read()
        if inventory.gpus:
            seen.miss("gpu-details", "no-nvml", error=problem)
            details, seen.facts["pairs"] = gpu_details.by_tool(), gpu_pairs.by_tool(len(inventory.gpus))
        else:
            driver["problem"] = f"{problem}; {inventory.problem}"
            seen.miss("gpus", "failed", tool="NVML, nvidia-smi", error=driver["problem"])
    driver["library"], driver["cuda"] = inventory.driver, _cuda(seen)
    seen.facts["source"] = inventory.source or None
    seen.facts["gpus"] = [_gpu(gpu, details.get(gpu.index, {})) for gpu in inventory.gpus]
    return seen


def _devices(where: Where, name: str) -> int:
    """Return how many devices of a name with a number behind it there are."""
    found = [entry.name for entry in entries(where.root / "dev") if entry.name.startswith(name)]
    return sum(entry.removeprefix(name).isdigit() for entry in found)


def _gpu(gpu: Gpu, details: dict[str, Any]) -> dict[str, Any]:
    told = asdict(gpu)
    return {**told, "processes": len(gpu.processes), **details}


def _by_nvml() -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]]]:
    library, _ = nvml.library()
    try:
        with nvml.session(library):
            count = library.nvmlDeviceGetCount()
            return gpu_details.by_library(library, count), gpu_pairs.by_library(library, count)
    except library.NVMLError:
        return {}, []


def _cuda(seen: Seen) -> str | None:
    """Return the newest CUDA that the driver supports; asking it needs no GPU and no memory of one."""
    number = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value:
            return f"{number.value // 1000}.{number.value % 1000 // 10}"
    except (OSError, AttributeError) as error:
        seen.miss("driver-cuda", "failed", tool="libcuda.so.1", error=error)
    return None
