"""Runs the program as a user does: another process, no terminal, a fixed language."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
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


def resize(terminal: int, columns: int) -> None:
    """Give a pseudo-terminal a size."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))


def run_on_terminal(*args: str, columns: int, env: Mapping[str, str]) -> str:
    """Return what the program writes to a pseudo-terminal as its standard output, with line ends as it wrote them."""
    terminal, entry = pty.openpty()
    resize(entry, columns)
    words = [sys.executable, "-m", "nccl_triage", *args]
    process = subprocess.Popen(words, stdout=entry, stderr=subprocess.DEVNULL, env={**environment(), **env})
    os.close(entry)
    shown = b""
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # how a pseudo-terminal says that its other end is closed
            break
        if not data:
            break
        shown += data
    os.close(terminal)
    assert process.wait(60) == 0
    return shown.decode().replace("\r\n", "\n")
