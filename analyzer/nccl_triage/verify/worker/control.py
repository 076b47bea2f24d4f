"""What the parent says to a rank over a pipe: that all ranks are ready, and that it wants to know the last collectives."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from .progress import ProgressMarks

#: Bytes on the pipe: all ranks are ready to meet; tell your last collectives.
GO, DUMP = b"g", b"d"
#: Collectives of the flight recorder that are told.
_KEPT = 20


def entries(torch: Any) -> list[dict[str, Any]]:
    """Return the last collectives that this rank issued, oldest first; empty where nothing is recorded."""
    c10d = getattr(torch._C, "_distributed_c10d", None)
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        dump = getattr(c10d, name, None)
        if dump is None:
            continue
        try:
            found = json.loads(dump(includeCollectives=True, onlyActive=False)).get("entries", [])
        except Exception:  # a recorder that fails must not end the experiment
            continue
        if found:
            return [_short(entry) for entry in found[-_KEPT:]]
    return []


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    kept = ("collective_seq_id", "p2p_seq_id", "profiling_name", "input_sizes", "output_sizes", "input_dtypes", "state")
    return {name: entry[name] for name in kept if name in entry}


class Control:
    """Listens to the parent in a thread, while the main thread may be stuck in a collective."""

    def __init__(self, descriptor: int, marks: ProgressMarks) -> None:
        self._descriptor, self._marks = descriptor, marks
        self._go = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_for_all(self) -> None:
        """Wait until all ranks are ready; for how long, the parent decides."""
        self._go.wait()

    def _listen(self) -> None:
        while said := os.read(self._descriptor, 1):
            if said == GO:
                self._go.set()
            elif said == DUMP:
                torch = sys.modules.get("torch")
                self._marks.say("flight", entries=entries(torch) if hasattr(torch, "_C") else [])
        os._exit(5)  # the parent is gone
