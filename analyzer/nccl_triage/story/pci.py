"""PCI addresses: the driver, nvidia-smi and NCCL write the same address in three ways."""

from __future__ import annotations

import re
from typing import NamedTuple

from nccl_triage.lazy_regex import lazily

_WRITTEN = lazily(r"^(?:PCI:)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?$", re.IGNORECASE)
_NUMBER = lazily(r"^[0-9a-f]{2,13}$", re.IGNORECASE)


class Address(NamedTuple):
    """Where a device sits; its function is left out, since the driver leaves it out too."""

    domain: int
    bus: int
    device: int

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}"


def parse(text: str | None) -> Address | None:
    """Return the address in ``PCI:0000:3b:00``, ``00000000:3B:00.0`` or ``3b:00.0``; None for something else."""
    found = _WRITTEN.match(text.strip()) if text else None
    if found is None:
        return None
    return Address(int(found[1] or "0", 16), int(found[2], 16), int(found[3], 16))


def of_bus_id(text: str | None) -> Address | None:
    """Return the address behind NCCL's ``busId 3b000``: its hexadecimal digits without separators (``misc/utils.cc``)."""
    if text is None or _NUMBER.match(text) is None:
        return None
    number = int(text, 16)
    return Address(number >> 20, (number >> 12) & 0xFF, (number >> 4) & 0xFF)
