"""The actor that runs the probes on a node of a Ray cluster.

Ray pickles this module by value, so that the cluster's nodes need no nccl-triage: standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: What Ray gives an actor without CPUs and GPUs of its own: it says nothing of the node.
_RAYS = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


class Prober:
    """Runs the archive of the probes in a process of its own; nothing stays on the node."""

    def __init__(self, program: bytes) -> None:
        self._program = program

    def clock(self) -> float:
        """Return the time of this node's clock."""
        return time.time()

    def look(self, wish: str, timeout: float) -> str:
        """Return the output of the probes; raises RuntimeError when they fail."""
        environment = {name: value for name, value in os.environ.items() if name not in _RAYS}
        with tempfile.TemporaryDirectory(prefix="nccl-triage-") as folder:
            archive = Path(folder, "doctor.zip")
            archive.write_bytes(self._program)
            try:
                told = subprocess.run(
                    [sys.executable, str(archive), wish],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=timeout,
                    env=environment,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"no answer within {timeout:.0f} s") from None
        if told.returncode != 0:
            lines = told.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
            raise RuntimeError(f"the probes exited with {told.returncode}: {lines[-1][:300]}")
        return told.stdout.decode("utf-8", "replace")
