"""A GPU and the GPUs of a host, as their driver describes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A compute process on a GPU; ``used`` in bytes, None where the driver does not say."""

    pid: int
    used: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver describes it; None stands for what it does not tell.

    ``index`` counts as nvidia-smi does, memory is in bytes, ``recovery_action`` is ``none`` or what the driver asks for,
    ``fault`` is ``lost``, ``reset-required`` or ``unknown`` when the driver cannot answer for the GPU.
    """

    index: int
    uuid: str = ""
    name: str = ""
    memory_total: int | None = None
    memory_used: int | None = None
    memory_free: int | None = None
    utilisation: int | None = None
    processes: tuple[GpuProcess, ...] = ()
    compute_mode: str | None = None
    mig: bool | None = None
    recovery_action: str | None = None
    ecc_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """The GPUs in the order in which a CUDA program counts them, or why there are none; ``source`` told so."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    problem: str | None = None
    source: str = ""
