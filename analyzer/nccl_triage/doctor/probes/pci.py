"""Links of GPUs, switches and network cards on the PCI bus, as /sys tells them: no driver is needed for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nccl_triage.doctor.probes.seen import Seen, Where, entries, number, text

_NVIDIA = 0x10DE
#: First two bytes of the class: what a device is (the PCI Code and ID Assignment Specification).
_KINDS = {0x0300: "gpu", 0x0302: "gpu", 0x0200: "nic", 0x0207: "nic", 0x0680: "switch"}
_SPEED = re.compile(r"^([\d.]+)")


def probe(where: Where) -> Seen:
    """Return the devices that matter, with their links: speeds in GT/s, widths in lanes."""
    base = where.root / "sys/bus/pci/devices"
    seen = Seen([])
    if not base.is_dir():
        seen.miss("pci", "absent", path=base)
        return seen
    for device in entries(base):
        vendor, code = number(device / "vendor"), number(device / "class")
        kind = _KINDS.get((code or 0) >> 8)
        if kind is None or (kind != "nic" and vendor != _NVIDIA):
            continue
        seen.facts.append(
            {"address": device.name.lower(), "kind": kind, "vendor": f"{vendor or 0:04x}", **_link(device)}
        )
    return seen


def _link(device: Path) -> dict[str, Any]:
    return {
        "speed": _speed(device / "current_link_speed"),
        "max_speed": _speed(device / "max_link_speed"),
        "width": number(device / "current_link_width"),
        "max_width": number(device / "max_link_width"),
        "numa": number(device / "numa_node"),
        "fatal": _errors(device / "aer_dev_fatal"),
        "nonfatal": _errors(device / "aer_dev_nonfatal"),
    }


def _speed(path: Path) -> float | None:
    found = _SPEED.match(text(path) or "")
    return float(found[1]) if found else None


def _errors(path: Path) -> int | None:
    """Return the total of a table of the bus's errors."""
    for line in (text(path) or "").splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("TOTAL_ERR") and value.isdigit():
            return int(value)
    return None
