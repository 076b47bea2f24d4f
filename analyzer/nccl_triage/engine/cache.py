"""Things derived from the rules, kept on disk between runs: literals of patterns, the compiled multi-pattern matcher.

A cache entry is named by a digest of everything it depends on, begins with a digest of its name and content, and is
written atomically: what was damaged, emptied, cut off or exchanged counts as absent and is made again, since half of a
table would change answers without a word. ``NCCL_TRIAGE_CACHE=off`` switches it off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

from nccl_triage._version import __version__

#: Versions, and sets of rules, whose entries are kept beside one another; and how many entries one makes of a kind.
_KEEP, _EACH = 6, {"hyperscan": 3}
#: Seconds after which an entry that is read is marked as used: what was not used for longest goes first.
_STALE = 3600.0
#: Bytes of the digest before an entry's content.
_DIGEST = hashlib.sha256().digest_size


def _folder() -> Path | None:
    chosen = os.environ.get("NCCL_TRIAGE_CACHE")
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "nccl-triage"
    except RuntimeError:  # no home folder
        return None


def name(kind: str, *parts: str) -> str:
    """Return the file name of an entry that depends on ``parts``, this version and this Python."""
    seed = "\0".join((kind, __version__, sys.version, *parts))
    return f"{kind}-{hashlib.sha256(seed.encode()).hexdigest()[:24]}"


def _digest(entry: str, data: bytes) -> bytes:
    made = hashlib.sha256(entry.encode() + b"\0")
    made.update(data)
    return made.digest()


def read(entry: str) -> bytes | None:
    """Return an entry, or None when it is absent or not what was written."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / entry
    try:
        if not stat.S_ISREG((found := path.stat()).st_mode):  # a pipe would be waited for
            return None
        data = path.read_bytes()
    except OSError:
        return None
    content = data[_DIGEST:]
    if data[:_DIGEST] != _digest(entry, content):
        return None
    with contextlib.suppress(OSError):
        if time.time() - found.st_mtime > _STALE:
            os.utime(path)
    return content


def write(entry: str, data: bytes) -> None:
    """Store an entry; a read-only or full disk is no error."""
    folder = _folder()
    if folder is None:
        return
    import tempfile  # seldom needed, and it brings others along

    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_digest(entry, data) + data)
            Path(temporary).replace(folder / entry)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        _forget_old(folder, entry.split("-")[0])


def _forget_old(folder: Path, kind: str) -> None:
    entries = sorted(folder.glob(f"{kind}-*"), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in entries[_KEEP * _EACH.get(kind, 1) :]:
        old.unlink(missing_ok=True)


def read_table(entry: str) -> dict[str, Any] | None:
    """Return a JSON object entry, or None when it is absent or damaged."""
    data = read(entry)
    if data is None:
        return None
    import orjson

    try:
        table = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return table if isinstance(table, dict) else None


def write_table(entry: str, table: dict[str, Any]) -> None:
    """Store a JSON object entry."""
    import orjson

    write(entry, orjson.dumps(table))
