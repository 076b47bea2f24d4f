"""Memory of this process, or of another one."""

from __future__ import annotations

import os
from pathlib import Path


def resident(pid: int | str = "self") -> float:
    """Return the resident memory of a process in megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
