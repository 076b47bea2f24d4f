"""A GPU and the GPUs of a host, as their driver describes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?", re.IGNORECASE)


def pci_address(text: object) -> str | None:
    """Return ``00000000:4F:00.0`` as ``0000:4f:00``, the way a rank reports its GPU; None for what is no PCI address."""
    found = _PCI.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        return None
    return f"{int(found[1] or '0', 16):04x}:{found[2].lower()}:{found[3].lower()}"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A compute process on a GPU; ``used`` in bytes, None where the driver does not say."""

    pid: int
    used: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver describes it; None stands for what it does not tell.

    ``index`` counts as nvidia-smi does, ``bus`` is its PCI address (``0000:4f:00``), memory is in bytes, ``recovery_action``
    is ``none`` or what the driver asks for, ``fault`` is ``lost``, ``reset-required`` or ``unknown`` when the driver
    cannot answer for the GPU. ``instances`` are the UUIDs of its MIG instances; ``instance`` is True for a MIG instance
    that stands for the GPU it is part of, with a UUID of its own.
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
    bus: str | None = None
    instances: tuple[str, ...] = ()
    instance: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """The GPUs in the order in which a CUDA program counts them, or why there are none; ``source`` told so."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    problem: str | None = None
    source: str = ""
