"""The worker as a file, as srun or torchrun start it."""

from __future__ import annotations

from pathlib import Path

from nccl_triage.verify.cluster import worker


def worker_file(folder: Path) -> Path:
    """Write the worker into a folder."""
    path = folder / "worker.pyz"
    path.write_bytes(worker().archive)
    return path
