"""Probes of the PCI bus: the links of GPUs, switches and network cards, and the IOMMU and ACS settings between them.

ACS lies in the extended configuration of a bridge, of which only root may read more than the first 64 bytes (PCI Express
Base Specification, 7.7: capability 0x000d, its control register at offset 6). Whether an IOMMU translates is readable
for everybody: the type of each group (Linux, Documentation/ABI/testing/sysfs-kernel-iommu_groups).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from
from typing import Any

from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget, entries, number, text

_NVIDIA = 0x10DE
#: First two bytes of the class: what a device is (the PCI Code and ID Assignment Specification).
_KINDS = {0x0300: "gpu", 0x0302: "gpu", 0x0200: "nic", 0x0207: "nic", 0x0680: "switch"}
_SPEED = re.compile(r"^([\d.]+)")


def probe_pci(where: ProbeTarget) -> ProbeResult:
    """Return the devices that matter, with their links: speeds in GT/s, widths in lanes."""
    base = where.root / "sys/bus/pci/devices"
    seen = ProbeResult([])
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


#: Class of a bridge between PCI buses, its first two bytes.
_BRIDGE = 0x0604
_EXTENDED, _ACS, _SIZE = 0x100, 0x000D, 4096
#: Of the control register: requests, completions or upstream traffic are sent to the root, whoever they are for.
_REDIRECTS = 0b11100
#: Kernel options that concern either.
_WORDS = (
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "arm-smmu",
    "iommu.passthrough",
    "iommu.strict",
    "pci",
    "pcie_acs_override",
)


def probe_isolation(where: ProbeTarget) -> ProbeResult:
    """Return the types of the IOMMU's groups, bridges whose ACS redirects, and the kernel's options for both."""
    groups = where.root / "sys/kernel/iommu_groups"
    types = {kind for group in entries(groups) if (kind := text(group / "type"))}
    seen = ProbeResult(
        {"iommu": bool(entries(groups)) if groups.is_dir() else None, "types": sorted(types), "options": []}
    )
    if not groups.is_dir():
        seen.miss("iommu", "absent", path=groups)
    options = (text(where.root / "proc/cmdline") or "").split()
    seen.facts["options"] = [word[:80] for word in options if word.partition("=")[0] in _WORDS][:16]
    bridges = list(_bridges(where.root / "sys/bus/pci/devices"))
    redirecting: list[str] = []
    for bridge in bridges:
        try:
            control = _control(bridge / "config")
        except OSError as error:
            seen.denied("acs", bridge / "config", error)
            return seen
        except EOFError:
            seen.miss("acs", "root")
            return seen
        if control is not None and control & _REDIRECTS:
            redirecting.append(bridge.name.lower())
    if bridges:
        seen.facts.update(bridges=len(bridges), redirecting=redirecting)
    return seen


def _bridges(base: Path) -> Iterator[Path]:
    for device in entries(base):
        if (number(device / "class") or 0) >> 8 == _BRIDGE:
            yield device


def _control(path: Path) -> int | None:
    """Return ACS's control register, None for a device without one. Raises EOFError where only the head may be read."""
    with path.open("rb") as file:
        data = file.read(_SIZE)
    if len(data) <= _EXTENDED:
        if len(data) < _EXTENDED:
            raise EOFError
        return None
    at = _EXTENDED
    for _ in range(_SIZE // 8):
        if at + 8 > len(data):
            return None
        head = unpack_from("<I", data, at)[0]
        if head & 0xFFFF == _ACS:
            control: int = unpack_from("<H", data, at + 6)[0]
            return control
        at = head >> 20
        if at < _EXTENDED:
            return None
    return None
