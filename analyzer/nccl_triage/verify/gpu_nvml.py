"""The GPUs as NVML tells them (the package nvidia-ml-py, module pynvml): questions only.

Each may be unsupported by a GPU, a driver or a version of the library: the answer is then None. Numbers are those of
nvml.h, so that a library which does not name them yet serves as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from nccl_triage.verify.gpus import Gpu, Inventory, Process

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
#: nvmlReturn_t.
_NO_DRIVER, _NO_LIBRARY, _LOST, _RESET_REQUIRED, _UNKNOWN = 9, 12, 15, 16, 999
_UNCORRECTED, _SINCE_LOADED = 1, 0


def read() -> Inventory:
    """Return all GPUs of this host in the order of the PCI bus, or why none can be seen; never raises."""
    nvml, problem = _library()
    if nvml is None:
        return Inventory(problem=problem)
    try:
        with _session(nvml):
            gpus = tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
            driver = _text(_Questions(nvml).ask("nvmlSystemGetDriverVersion"))
    except nvml.NVMLError as error:
        known = {_NO_DRIVER: "no NVIDIA driver is loaded", _NO_LIBRARY: "no NVIDIA driver library (libnvidia-ml) here"}
        return Inventory(problem=known.get(error.value, f"NVML: {error}"))
    return Inventory(gpus, driver or None, None if gpus else "the driver knows no GPU", "nvml")


def utilisation() -> dict[int, int | None]:
    """Return percent busy by index, as measured now; empty when the driver does not answer."""
    nvml, _ = _library()
    found: dict[int, int | None] = {}
    if nvml is not None:
        with contextlib.suppress(nvml.NVMLError), _session(nvml):
            for index in range(nvml.nvmlDeviceGetCount()):
                with contextlib.suppress(nvml.NVMLError):
                    found[index] = _Questions(nvml, nvml.nvmlDeviceGetHandleByIndex(index)).utilisation()
    return found


def _library() -> tuple[Any, str]:
    try:
        import pynvml
    except (ImportError, OSError) as error:
        return None, f"the library nvidia-ml-py cannot be used ({error})"
    return pynvml, ""


@contextlib.contextmanager
def _session(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _text(found: Any) -> str:
    # Libraries before 11.515 return bytes.
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found or "")


class _Questions:
    """Questions to one GPU (or to the driver, without a handle) that answer None for what is not supported."""

    def __init__(self, nvml: Any, handle: Any = None) -> None:
        self._nvml = nvml
        self._first = () if handle is None else (handle,)
        self._errors: dict[str, int] = {}

    def ask(self, function: str, *arguments: Any, **options: Any) -> Any:
        call = getattr(self._nvml, function, None)
        if call is None:
            return None
        try:
            return call(*self._first, *arguments, **options)
        except self._nvml.NVMLError as error:
            self._errors[function] = error.value
            return None

    def fault(self) -> str | None:
        """Return what the errors so far say of the GPU itself rather than of the questions."""
        codes = set(self._errors.values())
        if _LOST in codes:
            return "lost"
        if _RESET_REQUIRED in codes:
            return "reset-required"
        # Rare questions have "unknown error" for an answer on healthy GPUs; its memory every GPU knows.
        return "unknown" if self._errors.get("nvmlDeviceGetMemoryInfo") == _UNKNOWN else None

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


def _gpu(nvml: Any, index: int) -> Gpu:
    try:
        questions = _Questions(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError as error:
        return Gpu(index, fault={_LOST: "lost", _RESET_REQUIRED: "reset-required"}.get(error.value, "unknown"))
    ask = questions.ask
    total, used, free = questions.memory()
    mode, mig = ask("nvmlDeviceGetComputeMode"), ask("nvmlDeviceGetMigMode")
    pending, failure = questions.remapped_rows()
    return Gpu(
        index=index,
        uuid=_text(ask("nvmlDeviceGetUUID")),
        name=_text(ask("nvmlDeviceGetName")),
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
