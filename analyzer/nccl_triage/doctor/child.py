"""The process of one group of probes: a thread each, and a line of JSON for every answer as it comes."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from nccl_triage.doctor.probes import GROUPS
from nccl_triage.doctor.probes.seen import Seen, Where


def main(group: str, wish: str) -> None:
    """Run the probes of a group; ends the process, whatever still hangs in it."""
    asked = json.loads(wish)
    where = Where(
        Path(asked["root"]), dict(os.environ), asked["python"], tuple(asked["paths"]), float(asked["patience"])
    )
    lock = threading.Lock()
    threads = [threading.Thread(target=_answer, args=(name, where, lock), daemon=True) for name in GROUPS[group]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)


def run(name: str, where: Where) -> Seen:
    """Return what one probe saw; a bug in it is something that could not be seen."""
    try:
        seen: Seen = importlib.import_module(f"nccl_triage.doctor.probes.{name}").probe(where)
    except Exception as error:
        seen = Seen(None)
        seen.miss(name, "broke", error=f"{type(error).__name__}: {error}")
    return seen


def _answer(name: str, where: Where, lock: threading.Lock) -> None:
    start = time.monotonic()
    seen = run(name, where)
    told: dict[str, Any] = {
        "probe": name,
        "facts": seen.facts,
        "unseen": seen.unseen,
        "seconds": round(time.monotonic() - start, 3),
    }
    data = json.dumps(told).encode()
    with lock:
        sys.stdout.buffer.write(data + b"\n")
        sys.stdout.buffer.flush()
