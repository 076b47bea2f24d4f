"""What stands between two devices of the PCI bus that speak to each other: the IOMMU, and ACS on the bridges above them.

ACS lies in the extended configuration of a bridge, of which only root may read more than the first 64 bytes (PCI Express
Base Specification, 7.7: capability 0x000d, its control register 6 bytes behind its head). Whether an IOMMU translates
is told to everybody: the type of each group (Linux, Documentation/ABI/testing/sysfs-kernel-iommu_groups).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from

from nccl_triage.doctor.probes.seen import Seen, Where, entries, number, text

#: Class of a bridge between PCI buses, its first two bytes.
_BRIDGE = 0x0604
_EXTENDED, _ACS, _SIZE = 0x100, 0x000D, 4096
#: Of the control register: requests, completions or upstream traffic are sent to the root, whoever they are for.
_REDIRECTS = 0b11100
#: Of the kernel's command line, what speaks of either.
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


def probe(where: Where) -> Seen:
    """Return the types of the IOMMU's groups, bridges whose ACS redirects, and the kernel's options for both."""
    groups = where.root / "sys/kernel/iommu_groups"
    types = {kind for group in entries(groups) if (kind := text(group / "type"))}
    seen = Seen({"iommu": bool(entries(groups)) if groups.is_dir() else None, "types": sorted(types), "options": []})
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
