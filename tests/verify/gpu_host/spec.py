"""What a host and its GPUs are, as a test says it; every value has the default of a healthy idle H100."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Fault:
    """What a GPU does wrong.

    ``at`` is init (its communicator), collective or compute (a product of matrices); ``does`` is raise, hang, slow (by
    ``seconds``) or wrong (one element). It strikes after that many collectives, in communicators of at least ``world``
    ranks with at least ``local`` of them on the host, and not where all of ``unless`` are set. ``raise`` gives NCCL's ``result`` and last error.
    """

    at: str = "collective"
    does: str = "hang"
    seconds: float = 0.0
    after: int = 0
    world: int = 0
    local: int = 0
    unless: Mapping[str, str] = field(default_factory=dict)
    result: str = "ncclSystemError"
    last: str = "socketStartConnect: Connect to 10.0.0.7<43210> failed : Software caused connection abort"


@dataclass
class Gpu:
    """One GPU; memory in MiB, ``mig`` None where it cannot be divided, ``fault`` lost or None.

    Each process of this host's programs takes ``context_mib``.
    ``processes`` are those of others, as (pid, MiB); the processes of this host's programs are added as they run.
    """

    name: str = "NVIDIA H100 80GB HBM3"
    memory_total_mib: int = 81559
    memory_used_mib: int = 1
    utilisation: int | None = 0
    processes: tuple[tuple[int, int | None], ...] = ()
    compute_mode: str = "Default"
    mig: bool | None = False
    instances: tuple[str, ...] = ()
    ecc_uncorrected: int | None = 0
    recovery_action: str | None = "None"
    remap_pending: bool | None = False
    remap_failure: bool | None = False
    fault: str | None = None
    context_mib: int = 500
    faults: tuple[Fault, ...] = ()
    index: int | None = None
    uuid: str | None = None
    bus: str | None = None

    def told(self, host: str, index: int) -> dict[str, Any]:
        """Return the GPU as the host's file has it; what is None is made of the host's name and the place."""
        found = asdict(self)
        number = index if self.index is None else self.index
        found["index"] = number
        # Different GPUs of different hosts, the same in every run.
        digest = sum((place + 1) * ord(character) for place, character in enumerate(host)) % 0xFFFF
        found["uuid"] = self.uuid or f"GPU-{digest:08x}-0000-4000-8000-{number:012x}"
        found["bus"] = self.bus or f"00000000:{0x19 + 8 * number:02X}:00.0"
        found["processes"] = [{"pid": pid, "used_mib": used} for pid, used in self.processes]
        if self.mig and not self.instances:
            found["instances"] = [f"MIG-{digest:08x}-{number:04x}-5000-8000-00000000000{part}" for part in range(2)]
        return found


@dataclass
class Torch:
    """The torch of a host: kind is cuda, cpu, rocm, missing or broken (``error`` is its ImportError's text)."""

    kind: str = "cuda"
    version: str = "2.13.0+cu128"
    import_seconds: float = 0.0
    error: str = "libcudart.so.12: cannot open shared object file: No such file or directory"


@dataclass
class Host:
    """A host: ``smi`` is ok, none (no such program), hangs, no-devices, no-driver or mismatch.

    ``smi_unknown`` are fields that its nvidia-smi does not know, ``names`` are names with their addresses, besides
    those of all hosts of the machine. ``namespace`` is the host's network namespace and ``address`` its address there; empty
    for this machine's own network.
    """

    name: str
    gpus: tuple[Gpu, ...] = ()
    driver: str = "550.127.05"
    smi: str = "ok"
    smi_unknown: tuple[str, ...] = ()
    torch: Torch = field(default_factory=Torch)
    nccl: str = "2.27.5"
    cuda: str = "12.8"
    names: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    address: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    def told(self, folder: str) -> dict[str, Any]:
        """Return the host as its file has it."""
        found = asdict(self)
        found["gpus"] = [gpu.told(self.name, index) for index, gpu in enumerate(self.gpus)]
        found["torch"] = {**asdict(self.torch), "version": _version(self.torch)}
        found["names"] = {self.name: self.address or "127.0.0.1", **self.names}
        found["folder"] = folder
        return found


def _version(torch: Torch) -> str:
    """Return the version of a build for the CPU or for ROCm, where none is given."""
    default = Torch().version
    other = {"cpu": "2.13.0+cpu", "rocm": "2.13.0+rocm6.4"}.get(torch.kind)
    return other if other and torch.version == default else torch.version


def gpus(count: int, **changes: Any) -> tuple[Gpu, ...]:
    """Return so many GPUs, all alike."""
    return tuple(Gpu(**changes) for _ in range(count))
