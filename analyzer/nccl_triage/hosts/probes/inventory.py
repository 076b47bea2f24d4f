"""What a host offers to ranks: its GPUs, how busy they are, and the torch of this interpreter; nothing is changed.

One answer for the driver, the same for this host and for others. No CUDA is initialised: asking must not take memory on a
GPU that someone else uses, nor the one place on a GPU in exclusive-process mode.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from . import children
from .gpu import Gpu, Inventory
from .torch_build import built

#: Percent busy is asked for this often, over so many seconds.
SAMPLES, SAMPLED = 3, 1.0
#: Seconds that a fresh process may take to import torch.
IMPORT = 100.0
_TOOL = "nvidia-smi"
_LIBRARY = "libnvidia-ml.so.1"
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",
)
#: The device of AMD's GPUs for computing.
_KFD = Path("/dev/kfd")

Sampler = Callable[[], Mapping[int, int | None]]


def likely_present(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> bool:
    """Return whether asking for NVIDIA GPUs is worth it: a device, driver, library or tool exists. Imports nothing."""
    if (root / "proc/driver/nvidia").exists() or any((root / "dev").glob("nvidia[0-9]*")):
        return True
    given = os.environ if environment is None else environment
    if shutil.which(_TOOL, path=given.get("PATH", "")):
        return True
    folders = [root / name for name in _LIBRARY_FOLDERS]
    folders += [Path(path) for path in given.get("LD_LIBRARY_PATH", "").split(":") if path]
    return any((folder / _LIBRARY).exists() for folder in folders)


def visible(environment: Mapping[str, str] | None = None) -> Inventory:
    """Return the GPUs that a CUDA program started from here would see; never raises.

    ``environment`` (default: this process's) gives CUDA_VISIBLE_DEVICES. Indices count in the order of the PCI bus: with
    different GPUs in one host CUDA counts so only when CUDA_DEVICE_ORDER=PCI_BUS_ID is set, and the inventory says it.
    """
    from . import gpu_smi, nvml

    inventory = nvml.read()
    if not inventory.source:
        with_tool = gpu_smi.read()
        problem = None if with_tool.gpus else f"{inventory.problem}; {with_tool.problem}"
        inventory = replace(with_tool, problem=problem)
    return selected(inventory, os.environ if environment is None else environment)


def selected(inventory: Inventory, environment: Mapping[str, str]) -> Inventory:
    """Return the inventory as CUDA_VISIBLE_DEVICES leaves it.

    As CUDA does it: the list ends before its first entry that names no GPU; a UUID may be shortened; of MIG instances a
    program sees one only (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars, MIG user guide).
    """
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    if wanted is None or not inventory.gpus:
        return inventory
    chosen: list[Gpu] = []
    problem = None
    for entry in (part.strip() for part in wanted.split(",")):
        gpu = _named(entry, inventory.gpus)
        if gpu is None:
            kind = "no MIG instance" if entry.startswith("MIG-") else "no GPU"
            problem = f"CUDA_VISIBLE_DEVICES={wanted}: {entry!r} names {kind} of this host"
            break
        if gpu in chosen:
            chosen, problem = [], f"CUDA_VISIBLE_DEVICES={wanted}: {entry!r} is listed twice"
            break
        chosen.append(gpu)
        if gpu.instance:
            break
    by_index = any(entry.strip().isdigit() for entry in wanted.split(","))
    if (
        by_index
        and len({gpu.name for gpu in inventory.gpus}) > 1
        and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    ):
        problem = (
            problem
            or "different GPUs in one host: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or indices may refer to other GPUs"
        )
    return replace(inventory, gpus=tuple(chosen), problem=problem)


def _named(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    if entry.isdigit():
        return next((gpu for gpu in gpus if gpu.index == int(entry)), None)
    if entry.startswith("MIG-"):
        return _instance(entry, gpus)
    found = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def _instance(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """Return a MIG instance as a GPU; its memory is a part of the GPU's that the driver does not tell here."""
    found = [(gpu, uuid) for gpu in gpus for uuid in gpu.instances if uuid.startswith(entry)]
    if len(found) != 1:
        return None
    gpu, uuid = found[0]
    return replace(gpu, uuid=uuid, instance=True, memory_total=None, memory_used=None, memory_free=None)


def samples(inventory: Inventory, sample: Sampler | None = None, sleep: Callable[[float], None] = time.sleep) -> Any:
    """Return the percents busy of each GPU, by index: those of the inventory and of ``SAMPLES`` - 1 further questions.

    ``sample`` gives percent busy by index (default: asks the driver).
    """
    found: dict[int, list[int]] = {gpu.index: [gpu.utilisation or 0] for gpu in inventory.gpus}
    sample = sample or _sampler(inventory)
    for _ in range(SAMPLES - 1 if found else 0):
        sleep(SAMPLED / (SAMPLES - 1))
        for index, percent in sample().items():
            if index in found and percent is not None:
                found[index].append(percent)
    return found


def _sampler(inventory: Inventory) -> Sampler:
    from . import gpu_smi, nvml

    return nvml.utilisation if inventory.source == "nvml" else gpu_smi.utilisation


def answer(*, look: bool = True, imports: bool = True, sampled: bool = True) -> dict[str, Any]:
    """Return what the driver asks of a host, ready for JSON: GPUs with percents busy, the driver, a problem, and torch.

    ``look`` False: nothing here looks like a GPU, so that nothing is asked. Where there are GPUs, a child process imports
    torch, if ``imports``: only then it is known whether it works, and with which NCCL. Unless ``sampled``, percents busy
    are those of one moment.
    """
    inventory = visible() if look else Inventory(problem="no NVIDIA GPU is visible")
    if not inventory.gpus and _KFD.exists():
        inventory = replace(inventory, source="rocm")
    torch, importing = built(), None
    if inventory.gpus and imports and torch is not None:
        importing = _start_import()
    busy = samples(inventory) if sampled else {}
    if importing is not None:
        torch = {**(torch or {}), **_imported(importing)}
    return {
        "source": inventory.source,
        "driver": inventory.driver,
        "problem": inventory.problem,
        "gpus": [{**asdict(gpu), "busy": busy.get(gpu.index, [])} for gpu in inventory.gpus],
        "torch": torch,
    }


def _start_import() -> subprocess.Popen[bytes] | None:
    try:
        # Without a visible GPU even a torch that would initialise CUDA on import cannot.
        return children.helper("torch", environment={"CUDA_VISIBLE_DEVICES": ""})
    except OSError:
        return None


def _imported(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    try:
        output, _ = process.communicate(timeout=IMPORT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"error": f"importing torch took more than {IMPORT:.0f} s"}
    try:
        told = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": f"a process that imports torch ends with exit code {process.returncode}"}
    return told if isinstance(told, dict) else {}
