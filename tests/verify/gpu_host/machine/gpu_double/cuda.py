"""torch.cuda of a host's file: devices, properties, memory, events; time is the processor's."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import host

_BUSY = (
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)


#: Seconds that the work of this process's GPU was made to take.
_paused = 0.0


def pause(seconds: float) -> None:
    """Let the GPU take longer."""
    global _paused
    time.sleep(seconds)
    _paused += seconds


def work_clock() -> float:
    """Return the seconds that this thread has worked: the GPU's own work, which other programs do not make longer."""
    return time.thread_time() + _paused


class Identity:
    """A GPU's UUID as torch gives it: its text lacks the prefix."""

    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("GPU-")

    def __str__(self) -> str:
        return self._text


class Event:
    """An event of a stream; all work is done when a call returns."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._timed, self._at = enable_timing, None

    def record(self, stream: Any = None) -> None:
        self._at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Nothing runs beside the calls."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Nothing runs beside the calls."""

    def elapsed_time(self, end: Event) -> float:
        if not self._timed or not end._timed or self._at is None or end._at is None:
            raise RuntimeError("Both events must be created with argument 'enable_timing=True' and be recorded.")
        return (end._at - self._at) * 1000.0


class Stream:
    """A stream; it orders nothing."""

    def __init__(self, device: Any = None, priority: int = 0, **more: Any) -> None:
        self.device, self.cuda_stream = device, 0

    def synchronize(self) -> None:
        """Nothing runs beside the calls."""

    def query(self) -> bool:
        return True

    def wait_stream(self, stream: Any) -> None:
        """Nothing runs beside the calls."""

    def wait_event(self, event: Any) -> None:
        """Nothing runs beside the calls."""

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event


class Devices:
    """The GPUs that this process sees, and the current one."""

    def __init__(self, torch: Any, told: dict[str, Any]) -> None:
        self._torch, self.told, self._folder = torch, told, Path(told["folder"])
        self._current: int | None = None
        self._seen: list[dict[str, Any]] | None = None

    @property
    def seen(self) -> list[dict[str, Any]]:
        """The visible GPUs, as CUDA finds them when it is first used."""
        if self._seen is None:
            healthy = self.told["smi"] not in ("no-driver", "mismatch", "no-devices")
            self._seen = host.devices(self.told, os.environ) if healthy else []
        return self._seen

    def number(self, device: Any = None) -> int:
        """Return the ordinal of a device, of its name, or of the current one; raises RuntimeError for none of ours."""
        if isinstance(device, (str, self._torch.device)):
            device = self._torch.device(device).index
        chosen = (self._current or 0) if device is None else int(device)
        if not self.seen:
            raise RuntimeError("No CUDA GPUs are available")
        if not 0 <= chosen < len(self.seen):
            raise self._torch.AcceleratorError("CUDA error: invalid device ordinal\nGPU device may be out of range")
        return chosen

    def use(self, device: Any = None) -> dict[str, Any]:
        """Make a context on a GPU, as every first use does; raises AcceleratorError where another process has it alone."""
        gpu = self.seen[self.number(device)]
        if not host.hold(self._folder, gpu):
            raise self._torch.AcceleratorError(_BUSY)
        return gpu

    def set_device(self, device: Any) -> None:
        number = self.number(device)
        self.use(number)
        self._current = number

    def current_device(self) -> int:
        return self.number()

    def properties(self, device: Any = None) -> Any:
        gpu = self.seen[self.number(device)]
        domain, bus, rest = gpu["bus"].split(":")
        return SimpleNamespace(
            name=gpu["name"],
            total_memory=gpu["memory_total_mib"] << 20,
            major=9,
            minor=0,
            multi_processor_count=132,
            uuid=Identity(gpu["uuid"]),
            pci_domain_id=int(domain, 16),
            pci_bus_id=int(bus, 16),
            pci_device_id=int(rest.partition(".")[0], 16),
        )

    def free(self, device: Any = None) -> tuple[int, int]:
        gpu = self.use(device)
        whole = gpu["memory_total_mib"] << 20
        return whole - (gpu["memory_used_mib"] << 20) - (gpu["context_mib"] << 20), whole

    @contextlib.contextmanager
    def on(self, device: Any) -> Iterator[None]:
        before, self._current = self._current, self.number(device)
        try:
            yield
        finally:
            self._current = before


def install(torch: Any, told: dict[str, Any]) -> Devices:
    """Replace torch.cuda's functions."""
    devices, cuda = Devices(torch, told), torch.cuda
    stream = Stream()
    replaced: dict[str, Any] = {
        "is_available": lambda: bool(devices.seen),
        "device_count": lambda: len(devices.seen),
        "init": lambda: devices.number(),
        "is_initialized": lambda: devices._current is not None,
        "set_device": devices.set_device,
        "current_device": devices.current_device,
        "get_device_properties": devices.properties,
        "get_device_name": lambda device=None: devices.properties(device).name,
        "get_device_capability": lambda device=None: (9, 0),
        "mem_get_info": devices.free,
        "memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "empty_cache": lambda: None,
        "synchronize": lambda device=None: (devices.number(device), None)[1],
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "is_bf16_supported": lambda *_, **__: True,
        "can_device_access_peer": lambda device, peer: True,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "device": devices.on,
        "Event": Event,
        "Stream": Stream,
    }
    for name, value in replaced.items():
        setattr(cuda, name, value)
    version = tuple(int(part) for part in told["nccl"].split("."))
    cuda.nccl.version = lambda: version
    return devices
