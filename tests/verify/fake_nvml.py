"""A stand-in for the module pynvml: what the driver of some made-up GPUs would answer."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

GIB = 1 << 30
NOT_SUPPORTED, LOST, UNKNOWN = 3, 15, 999


class Card:
    """What the fake driver knows of one GPU; a function named in ``broken`` raises that code."""

    def __init__(self, number: int, **facts: Any) -> None:
        self.number = number
        self.uuid = f"GPU-{number}1111111-2222"
        self.name = "NVIDIA H100 80GB HBM3"
        self.total, self.used = 80 * GIB, 4 << 20
        self.busy = [0]
        self.processes: list[tuple[int, int | None]] = []
        self.mps: list[tuple[int, int | None]] = []
        self.mode, self.mig, self.recovery, self.ecc = 0, 0, 0, 0
        self.rows = (0, 0, 0, 0)
        self.instances: list[str] = []
        self.broken: dict[str, int] = {}
        self.__dict__.update(facts)


def fake_nvml(cards: list[Card], init: int = 0, old: bool = False) -> Any:
    """Return a module with the functions of pynvml that are called; ``old``: bytes, and no names of newer drivers."""
    module: Any = types.ModuleType("pynvml")
    open_sessions: list[int] = []
    module.sessions = open_sessions

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def function(name: str, answer: Callable[..., Any]) -> None:
        def call(card: Card, *arguments: Any, **options: Any) -> Any:
            if not open_sessions:
                raise NVMLError(1)
            if name in card.broken:
                raise NVMLError(card.broken[name])
            return answer(card, *arguments, **options)

        setattr(module, name, call)

    def start() -> None:
        if init:
            raise NVMLError(init)
        open_sessions.append(1)

    def handle(index: int) -> Card:
        if "handle" in cards[index].broken:
            raise NVMLError(cards[index].broken["handle"])
        return cards[index]

    def running(found: list[tuple[int, int | None]]) -> list[Any]:
        return [types.SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in found]

    def instance(card: Card, index: int) -> Card:
        if index >= len(card.instances):
            raise NVMLError(6)
        return Card(card.number, uuid=card.instances[index])

    def fields(card: Card, wanted: list[int]) -> list[Any]:
        assert wanted == [230]
        return [types.SimpleNamespace(nvmlReturn=0, value=types.SimpleNamespace(uiVal=card.recovery))]

    def memory(card: Card, version: int | None = None) -> Any:
        # The first version of the structure counts the driver's own memory as used.
        used = card.used + (0 if version else 600 << 20)
        return types.SimpleNamespace(total=card.total, used=used, free=card.total - used)

    function(
        "nvmlDeviceGetPciInfo", lambda card: types.SimpleNamespace(busId=f"00000000:{card.number:02X}:00.0".encode())
    )
    function("nvmlDeviceGetMaxMigDeviceCount", lambda card: 7)
    function("nvmlDeviceGetMigDeviceHandleByIndex", lambda card, index: instance(card, index))
    module.NVMLError = NVMLError
    module.nvmlInit, module.nvmlShutdown = start, open_sessions.pop
    module.nvmlDeviceGetCount = lambda: len(cards)
    module.nvmlDeviceGetHandleByIndex = handle
    module.nvmlSystemGetDriverVersion = lambda: b"535.54" if old else "580.82.07"
    function("nvmlDeviceGetUUID", lambda card: card.uuid.encode() if old else card.uuid)
    function("nvmlDeviceGetName", lambda card: card.name.encode() if old else card.name)
    function("nvmlDeviceGetMemoryInfo", memory)
    function(
        "nvmlDeviceGetUtilizationRates",
        lambda card: types.SimpleNamespace(gpu=card.busy.pop(0) if len(card.busy) > 1 else card.busy[0]),
    )
    function("nvmlDeviceGetComputeRunningProcesses", lambda card: running(card.processes))
    function("nvmlDeviceGetMPSComputeRunningProcesses", lambda card: running(card.mps))
    function("nvmlDeviceGetComputeMode", lambda card: card.mode)
    function("nvmlDeviceGetMigMode", lambda card: [card.mig, card.mig])
    function("nvmlDeviceGetTotalEccErrors", lambda card, kind, counter: card.ecc if (kind, counter) == (1, 0) else 77)
    function("nvmlDeviceGetRemappedRows", lambda card: card.rows)
    if not old:
        module.nvmlMemory_v2 = 0x02000028
        function("nvmlDeviceGetFieldValues", fields)
    return module
