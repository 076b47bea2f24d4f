"""What a driver of made-up GPUs tells beyond the questions of the verifier."""

from __future__ import annotations

import ctypes
import types
from typing import Any

from tests.verify.fake_nvml import NOT_SUPPORTED, Card, fake_nvml


class FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_t, as far as it is read."""

    _fields_ = (("state", ctypes.c_uint), ("status", ctypes.c_uint))


def fake_driver(cards: list[Card], old: bool = False) -> Any:
    """Return a module pynvml; ``old``: the names of the release before 535, and no fabric."""
    module = fake_nvml(cards)

    def unsupported() -> Any:
        return module.NVMLError(NOT_SUPPORTED)

    def link(card: Card, number: int) -> int:
        links = getattr(card, "links", {})
        if number not in links:
            raise unsupported()
        return int(links[number])

    def pages(card: Card, cause: int) -> list[int]:
        if not hasattr(card, "pages"):
            raise unsupported()
        return [0] * card.pages[cause]

    def fabric(card: Card, info: Any) -> int:
        info._obj.state, info._obj.status = getattr(card, "fabric", (0, 0))
        return 0

    module.nvmlDeviceGetPciInfo = lambda card: types.SimpleNamespace(busId=f"00000000:0{card.number}:00.0".encode())
    module.nvmlDeviceGetTemperature = lambda card, sensor: getattr(card, "heat", 41)
    module.nvmlDeviceGetTemperatureThreshold = lambda card, which: {0: 95, 1: 90}[which]
    module.nvmlDeviceGetEccMode = lambda card: [1, 1]
    module.nvmlDeviceGetRetiredPages = pages
    module.nvmlDeviceGetCurrPcieLinkWidth = lambda card: 16
    module.nvmlDeviceGetMaxPcieLinkWidth = lambda card: 16
    module.nvmlDeviceGetNvLinkState = link
    module.nvmlDeviceGetNvLinkErrorCounter = lambda card, number, counter: 5 if (number, counter) == (1, 2) else 0
    module.nvmlDeviceGetP2PStatus = lambda one, two, which: getattr(one, "p2p", {}).get((two.number, which), 0)
    module.nvmlDeviceGetTopologyCommonAncestor = lambda one, two: 50
    brakes = "nvmlDeviceGetCurrentClocksThrottleReasons" if old else "nvmlDeviceGetCurrentClocksEventReasons"
    setattr(module, brakes, lambda card: getattr(card, "brakes", 0))
    if not old:
        module.c_nvmlGpuFabricInfo_t = FabricInfo
        module.nvmlDeviceGetGpuFabricInfo = fabric
    return module
