"""GPUs as NVML reports them (package nvidia-ml-py, module pynvml): its library, a session, and read-only queries.

A query may be unsupported by a GPU, a driver or a version of the library; its answer is then None. Constants are numbers
of nvml.h, so that a library that does not name them yet works as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .gpu import Gpu, GpuProcess, Inventory, pci_address

#: nvmlReturn_t.
NO_DRIVER, NO_LIBRARY, LOST, RESET_REQUIRED, LIBRARY_MISMATCH, UNKNOWN = 9, 12, 15, 16, 18, 999


def load_library() -> tuple[Any, str]:
    """Return the module, or None and why it cannot be used."""
    try:
        import pynvml
    except (ImportError, OSError) as error:
        return None, f"the library nvidia-ml-py cannot be used ({error})"
    return pynvml, ""


@contextlib.contextmanager
def session(nvml: Any) -> Iterator[None]:
    """Start NVML and end it again; raises the library's NVMLError when it does not start."""
    nvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def text(found: Any) -> str:
    """Return a text of the library's; those before 11.515 return bytes."""
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found or "")


class NvmlQueries:
    """Queries of one GPU, or of the driver without a handle; unsupported ones return None."""

    def __init__(self, nvml: Any, handle: Any = None) -> None:
        self._nvml = nvml
        self._first = () if handle is None else (handle,)
        self.errors: dict[str, int] = {}

    def ask(self, function: str, *arguments: Any, **options: Any) -> Any:
        """Return the answer of a function of the library, None where there is none."""
        call = getattr(self._nvml, function, None)
        if call is None:
            return None
        try:
            return call(*self._first, *arguments, **options)
        except self._nvml.NVMLError as error:
            self.errors[function] = error.value
            return None

    def fault(self) -> str | None:
        """Return the fault of the GPU that the errors so far show, as opposed to unsupported queries."""
        codes = set(self.errors.values())
        if LOST in codes:
            return "lost"
        if RESET_REQUIRED in codes:
            return "reset-required"
        # Rare questions have "unknown error" for an answer on healthy GPUs; its memory every GPU knows.
        return "unknown" if self.errors.get("nvmlDeviceGetMemoryInfo") == UNKNOWN else None


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
    library, problem = load_library()
    if library is None:
        return Inventory(problem=problem)
    try:
        with session(library):
            gpus = tuple(_gpu(library, index) for index in range(library.nvmlDeviceGetCount()))
            driver = text(_GpuQueries(library).ask("nvmlSystemGetDriverVersion"))
    except library.NVMLError as error:
        known = {
            NO_DRIVER: "no NVIDIA driver is loaded",
            NO_LIBRARY: "no NVIDIA driver library (libnvidia-ml) here",
        }
        return Inventory(problem=known.get(error.value, f"NVML: {error}"))
    return Inventory(gpus, driver or None, None if gpus else "the driver finds no GPU", "nvml")


def utilisation() -> dict[int, int | None]:
    """Return percent busy by index, as measured now; empty when the driver does not answer."""
    library, _ = load_library()
    found: dict[int, int | None] = {}
    if library is not None:
        with contextlib.suppress(library.NVMLError), session(library):
            for index in range(library.nvmlDeviceGetCount()):
                with contextlib.suppress(library.NVMLError):
                    found[index] = _GpuQueries(library, library.nvmlDeviceGetHandleByIndex(index)).utilisation()
    return found


class _GpuQueries(NvmlQueries):
    """The queries of one GPU, with the errors seen so far."""

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

    def processes(self) -> tuple[GpuProcess, ...]:
        found = {}
        for kind in ("Compute", "MPSCompute"):
            for process in self.ask(f"nvmlDeviceGet{kind}RunningProcesses") or ():
                found[process.pid] = GpuProcess(process.pid, process.usedGpuMemory)
        return tuple(found.values())

    def bus(self) -> str | None:
        found = self.ask("nvmlDeviceGetPciInfo")
        return None if found is None else pci_address(text(found.busId))

    def instances(self) -> tuple[str, ...]:
        found = []
        for index in range(self.ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
            handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
            if handle is not None:
                found.append(text(_GpuQueries(self._nvml, handle).ask("nvmlDeviceGetUUID")))
        return tuple(uuid for uuid in found if uuid)

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
        questions = _GpuQueries(library, library.nvmlDeviceGetHandleByIndex(index))
    except library.NVMLError as error:
        return Gpu(index, fault={LOST: "lost", RESET_REQUIRED: "reset-required"}.get(error.value, "unknown"))
    ask = questions.ask
    total, used, free = questions.memory()
    mode, mig = ask("nvmlDeviceGetComputeMode"), ask("nvmlDeviceGetMigMode")
    pending, failure = questions.remapped_rows()
    return Gpu(
        index=index,
        uuid=text(ask("nvmlDeviceGetUUID")),
        name=text(ask("nvmlDeviceGetName")),
        memory_total=total,
        memory_used=used,
        memory_free=free,
        utilisation=questions.utilisation(),
        processes=questions.processes(),
        compute_mode=None if mode is None else _COMPUTE_MODES.get(mode, f"mode-{mode}"),
        mig=None if mig is None else bool(mig[0]),
        bus=questions.bus(),
        instances=questions.instances() if mig is not None and mig[0] else (),
        recovery_action=questions.recovery(),
        ecc_uncorrected=ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_LOADED),
        remap_pending=pending,
        remap_failure=failure,
        fault=questions.fault(),  # after all questions
    )
