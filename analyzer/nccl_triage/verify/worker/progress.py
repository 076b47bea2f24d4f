"""Progress marks of a rank: JSON lines on a pipe, one for each stage that is done."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

#: The stages of a rank in order; each mark says that the stage of its name is done.
STAGES = ("start", "imported", "device", "store", "group", "entered", "warm", "done")
_LINE = 60_000


class OwnFailureError(Exception):
    """Something that the experiment needs is missing: it says nothing of the hosts, nor of the job."""


class ProgressMarks:
    """Writes marks to a file descriptor; a closed pipe ends the process, since the reader is gone."""

    def __init__(self, descriptor: int, rank: int) -> None:
        self._descriptor = descriptor
        self._rank = rank
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self.stage = ""

    def say(self, stage: str, **details: Any) -> None:
        """Write one mark: the rank, the stage, seconds since the start, and what else is known."""
        mark = {"rank": self._rank, "stage": stage, "t": round(time.monotonic() - self._started, 4), **details}
        line = json.dumps(mark, default=str)
        if len(line) > _LINE:
            line = json.dumps({"rank": self._rank, "stage": stage, "t": mark["t"], "cut": len(line)})
        data = line.encode() + b"\n"
        if stage in STAGES:
            self.stage = stage
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                os._exit(5)
