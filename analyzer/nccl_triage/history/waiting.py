"""Incidents that found the database busy: a file each beside it, which the next writer takes in.

When hundreds of jobs die at once, hundreds of diagnoses are kept at once, and nobody is to wait long for the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from nccl_triage.history import rows
from nccl_triage.history.model import Incident, Input

#: Files that may wait, their largest size, and how many one writer takes in.
MOST, LARGEST, PORTION = 5000, 1 << 20, 500
_END = ".json"


def folder(path: Path) -> Path:
    """Return where the incidents of a database wait."""
    return path.with_name(path.name + ".waiting")


def leave(path: Path, incident: Incident) -> None:
    """Write an incident to a file of its own, at once or not at all; raises OSError."""
    place = folder(path)
    place.mkdir(mode=0o700, exist_ok=True)
    if sum(1 for _ in place.iterdir()) >= MOST:
        raise OSError(f"{MOST} files wait in {place} already")
    name = f"{time.time_ns():020}-{os.getpid()}"
    half = place / f".{name}"
    data = json.dumps(asdict(incident), ensure_ascii=False).encode("utf-8", "replace")
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)
    half.replace(place / f"{name}{_END}")


def collect(path: Path) -> list[tuple[Path, Incident | None]]:
    """Return the files that wait, the oldest first, each with its incident; None for what is none of ours."""
    try:
        files = sorted(file for file in folder(path).iterdir() if file.name.endswith(_END))
    except OSError:
        return []
    return [(file, _read(file)) for file in files[:PORTION]]


def remove(files: Iterable[Path]) -> None:
    """Remove files that were taken in."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()


def _read(file: Path) -> Incident | None:
    try:
        state = file.lstat()
        if not stat.S_ISREG(state.st_mode) or state.st_size > LARGEST:
            return None
        data = json.loads(file.read_bytes())
        row = {**data, "hosts": json.dumps(data["hosts"]), "software": json.dumps(data["software"])}
        culprits = tuple(rows.suspect(*(one[name] for name in rows.SUSPECT)) for one in data["culprits"])
        inputs = tuple(
            Input(str(one["path"]), int(one["bytes"]), int(one["lines"]), tuple(map(str, one["marks"])))
            for one in data["inputs"]
        )
        return rows.incident(0, row, culprits, inputs)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
