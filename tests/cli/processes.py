"""Runs the program as a user does: another process, no terminal, a fixed language."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests import prepared

ROOT = Path(__file__).parents[2]


def environment(**extra: str) -> dict[str, str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("LANG", "LC_", "NCCL_", "NO_COLOR", "FORCE_COLOR"))
    }
    return {**kept, "PYTHONPATH": str(ROOT / "analyzer"), "LANG": "C.UTF-8", **extra}


def run(*args: str, **extra: str) -> subprocess.CompletedProcess[bytes]:
    return prepared.run(args, env=environment(**extra))
