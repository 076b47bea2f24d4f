"""The cache on disk: what is derived from rules is kept between runs (parsed rules, literals, compiled matchers).

An entry is named by a digest of everything that it depends on. It begins with a digest of its name and content and is
written atomically, so an entry that was damaged, emptied, truncated or exchanged counts as absent and is made again:
half of a table would silently change answers. ``NCCL_TRIAGE_CACHE=off`` switches the cache off. It lies in the home, or
among the temporary files where that cannot be written.
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

from nccl_triage import cache_folders
from nccl_triage._version import __version__

#: Number of versions and sets of rules whose entries are kept, and how many entries each makes of a kind (else one).
_KEEP, _EACH = 6, {"hyperscan": 3}
#: Seconds after which what no run used is deleted, of whatever kind, and what a killed run left half written.
_UNUSED, _LEFT = 30 * 86_400.0, 3600.0
#: How the name of a file begins that is not yet an entry.
_DRAFT = "draft-"
#: Seconds after which an entry that is read is marked as used: the least recently used entries are deleted first.
_STALE = 3600.0
#: Characters of the digest in an entry's name.
_NAMED = 24
#: Length of the digest before an entry's content, in bytes.
_DIGEST = hashlib.sha256().digest_size


def _folder() -> Path | None:
    chosen = os.environ.get("NCCL_TRIAGE_CACHE")
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    home = cache_folders.at_home()
    if home is not None and (home.is_dir() or cache_folders.make(home)):
        return home
    return next(cache_folders.temporary(), None)


def name(kind: str, *parts: str) -> str:
    """Return the file name of an entry that depends on ``parts``, this version and this Python."""
    seed = "\0".join((kind, __version__, sys.version, *parts))
    return f"{kind}-{hashlib.sha256(seed.encode()).hexdigest()[:_NAMED]}"


def _digest(entry: str, data: bytes) -> bytes:
    made = hashlib.sha256(entry.encode() + b"\0")
    made.update(data)
    return made.digest()


def read(entry: str) -> bytes | None:
    """Return an entry, or None if it is absent or not what was written."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / entry
    try:
        if not stat.S_ISREG((found := path.stat()).st_mode):  # reading a pipe would block
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
    """Store an entry; a read-only or full disk is not an error."""
    folder = _folder()
    if folder is None:
        return
    import tempfile  # rarely needed, and it imports other modules

    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(prefix=_DRAFT, dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_digest(entry, data) + data)
            Path(temporary).replace(folder / entry)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        _forget_old(folder, entry.split("-")[0])


def _forget_old(folder: Path, kind: str) -> None:
    """Delete the least recently used entries of a kind beyond those that are kept, and whatever is old.

    Other files in the folder are left alone. Another run may write, use or delete entries meanwhile: who reads one that
    is gone makes it again.
    """
    now = time.time()
    used: dict[Path, float] = {}
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            used[path] = path.stat().st_mtime
    same = [path for path in used if path.name.startswith(f"{kind}-") and _is_entry(path)]
    same.sort(key=used.__getitem__, reverse=True)
    old = same[_KEEP * _EACH.get(kind, 1) :]
    old += [path for path, at in used.items() if now - at > _UNUSED and _is_entry(path)]
    old += [path for path, at in used.items() if now - at > _LEFT and path.name.startswith(_DRAFT)]
    for path in old:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _is_entry(path: Path) -> bool:
    """Tell whether a file is named as ``name`` does it."""
    kind, _, digest = path.name.rpartition("-")
    return kind.replace("_", "").isalpha() and len(digest) == _NAMED and not digest.strip("0123456789abcdef")


def read_table(entry: str) -> dict[str, Any] | None:
    """Return an entry that is a JSON object, or None if it is absent or damaged."""
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
    """Store an entry that is a JSON object."""
    import orjson

    write(entry, orjson.dumps(table))
