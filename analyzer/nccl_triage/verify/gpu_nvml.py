"""The GPUs as NVML tells them: questions only.

Each may be unsupported by a GPU, a driver or a version of the library: the answer is then None.
"""

from __future__ import annotations

import contextlib
from typing import Any

from nccl_triage.verify import nvml
from nccl_triage.verify.gpu import Gpu, Inventory, Process

_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
#: nvmlDeviceGpuRecoveryAction_t, asked by the field NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.
_RECOVERY_FIELD = 230
_RECOVERY = (
    "none",
    "gpu-reset",
    "node-reboot",
    "drain-p2p",
    "drain-and-reset",
    "recover-imex-domain",
    "bus-reset",
    "system-reboot",
)
_UNCORRECTED, _SINCE_LOADED = 1, 0


def read() -> Inventory:
    """Return all GPUs of this host in the order of the PCI bus, or why none can be seen; never raises."""
    library, problem = nvml.library()
    if library is None:
        return Inventory(problem=problem)
    try:
        with nvml.session(library):
            gpus = tuple(_gpu(library, index) for index in range(library.nvmlDeviceGetCount()))
            driver = nvml.text(_Questions(library).ask("nvmlSystemGetDriverVersion"))
    except library.NVMLError as error:
        known = {
            nvml.NO_DRIVER: "no NVIDIA driver is loaded",
            nvml.NO_LIBRARY: "no NVIDIA driver library (libnvidia-ml) here",
        }
        return Inventory(problem=known.get(error.value, f"NVML: {error}"))
    return Inventory(gpus, driver or None, None if gpus else "the driver knows no GPU", "nvml")


def utilisation() -> dict[int, int | None]:
    """Return percent busy by index, as measured now; empty when the driver does not answer."""
    library, _ = nvml.library()
    found: dict[int, int | None] = {}
    if library is not None:
        with contextlib.suppress(library.NVMLError), nvml.session(library):
            for index in range(library.nvmlDeviceGetCount()):
                with contextlib.suppress(library.NVMLError):
                    found[index] = _Questions(library, library.nvmlDeviceGetHandleByIndex(index)).utilisation()
    return found


class _Questions(nvml.Questions):
    """What one GPU is asked here."""

    def utilisation(self) -> int | None:
        rates = self.ask("nvmlDeviceGetUtilizationRates")
        return None if rates is None else int(rates.gpu)

    def memory(self) -> tuple[int | None, int | None, int | None]:
        # The second version of the structure does not count as used what the driver keeps for itself.
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        found = self.ask("nvmlDeviceGetMemoryInfo", version=version) if version else None
        if found is None:
            found = self.ask("nvmlDeviceGetMemoryInfo")
        return (None, None, None) if found is None else (int(found.total), int(found.used), int(found.free))

    def processes(self) -> tuple[Process, ...]:
        found = {}
        for kind in ("Compute", "MPSCompute"):
            for process in self.ask(f"nvmlDeviceGet{kind}RunningProcesses") or ():
                found[process.pid] = Process(process.pid, process.usedGpuMemory)
        return tuple(found.values())

    def recovery(self) -> str | None:
        values = self.ask("nvmlDeviceGetFieldValues", [_RECOVERY_FIELD])
        if not values or values[0].nvmlReturn != 0:
            return None
        action = int(values[0].value.uiVal)
        return _RECOVERY[action] if action < len(_RECOVERY) else f"action-{action}"

    def remapped_rows(self) -> tuple[bool | None, bool | None]:
        rows = self.ask("nvmlDeviceGetRemappedRows")  # correctable, uncorrectable, pending, failure
        return (None, None) if rows is None else (bool(rows[2]), bool(rows[3]))


def _gpu(library: Any, index: int) -> Gpu:
    try:
        questions = _Questions(library, library.nvmlDeviceGetHandleByIndex(index))
    except library.NVMLError as error:
        return Gpu(index, fault={nvml.LOST: "lost", nvml.RESET_REQUIRED: "reset-required"}.get(error.value, "unknown"))
    ask = questions.ask
    total, used, free = questions.memory()
    mode, mig = ask("nvmlDeviceGetComputeMode"), ask("nvmlDeviceGetMigMode")
    pending, failure = questions.remapped_rows()
    return Gpu(
        index=index,
        uuid=nvml.text(ask("nvmlDeviceGetUUID")),
        name=nvml.text(ask("nvmlDeviceGetName")),
        memory_total=total,
        memory_used=used,
        memory_free=free,
        utilisation=questions.utilisation(),
        processes=questions.processes(),
        compute_mode=None if mode is None else _COMPUTE_MODES.get(mode, f"mode-{mode}"),
        mig=None if mig is None else bool(mig[0]),
        recovery_action=questions.recovery(),
        ecc_uncorrected=ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_LOADED),
        remap_pending=pending,
        remap_failure=failure,
        fault=questions.fault(),
    )
