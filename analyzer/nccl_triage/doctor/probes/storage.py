"""Room on the file systems that a job writes to; one that does not answer is a finding and stops nobody."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from nccl_triage.doctor.probes.seen import Seen, Where

#: Seconds that one file system may take to answer.
PATIENCE = 3.0
_READ_ONLY = 1


def probe(where: Where) -> Seen:
    """Return size, free bytes, free share of inodes and mode of each path, once a file system."""
    paths = ["/", "/tmp", *where.paths]
    if home := where.environment.get("HOME"):
        paths.append(home)
    found: dict[str, dict[str, Any] | OSError] = {}
    threads = []
    for path in dict.fromkeys(paths):
        thread = threading.Thread(target=_ask, args=(where.root, path, found), daemon=True)
        thread.start()
        threads.append((path, thread))
    seen = Seen([])
    known = set()
    for path, thread in threads:
        thread.join(PATIENCE * where.patience)
        answer = found.get(path)
        if answer is None:
            seen.facts.append({"path": path, "hangs": True})
        elif isinstance(answer, OSError):
            seen.denied("storage", path, answer)
        elif answer["device"] not in known:
            known.add(answer.pop("device"))
            seen.facts.append({"path": path, "hangs": False, **answer})
    return seen


def _ask(root: Path, path: str, found: dict[str, dict[str, Any] | OSError]) -> None:
    place = root / path.lstrip("/")
    try:
        about = os.statvfs(place)
        found[path] = {
            "device": place.stat().st_dev,
            "size": about.f_frsize * about.f_blocks,
            "free": about.f_frsize * about.f_bavail,
            "inodes_free": round(about.f_favail / about.f_files, 4) if about.f_files else None,
            "read_only": bool(about.f_flag & _READ_ONLY),
        }
    except OSError as error:
        found[path] = error
