"""Names of running processes, from /proc."""

from __future__ import annotations

from collections.abc import Collection

from nccl_triage.doctor.probes.seen import Where, entries, text

#: Characters of a process's name that the kernel keeps.
_KEPT = 15


def names_of_processes(where: Where, wanted: Collection[str]) -> set[str]:
    """Return which of the names some process has."""
    short = {name[:_KEPT]: name for name in wanted}
    found = set()
    for entry in entries(where.root / "proc"):
        if entry.name.isdigit():
            name = text(entry / "comm")
            if name in short:
                found.add(short[name])
    return found
