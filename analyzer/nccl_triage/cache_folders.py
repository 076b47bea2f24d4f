"""Folders for what can be made again: in the user's home, or where that cannot be written, among the temporary files.

A broken container has a home that is missing or read-only. A folder among temporary files is at a name that anybody can
guess and take first, so it counts only if nobody but this user (and root) can change what lies in it.

The start of ``nccl-triage.pyz`` holds a copy of this module, which therefore imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

NAME = "nccl-triage"
#: Who owns what belongs to nobody known in this user namespace (linux/highuid.h): in a rootless container root's files.
_UNMAPPED = 65534


def at_home() -> Path | None:
    """Return our folder below ``$XDG_CACHE_HOME`` or ``~/.cache``, made or not; None if the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / NAME
    except RuntimeError:
        return None


def temporary() -> Iterator[Path]:
    """Yield the user's own folders among temporary files, made as they are asked for; only those that can be trusted."""
    named = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    for base in dict.fromkeys([*named, "/tmp", "/var/tmp", "/dev/shm"]):
        if base and Path(base).is_absolute():
            folder = Path(base) / f"{NAME}-{os.geteuid()}"
            if make(folder) and is_ours(folder):
                yield folder


def make(folder: Path) -> bool:
    """Make a folder that its owner alone can read, and its parents; tell whether it can be written now."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def is_ours(folder: Path) -> bool:
    """Tell whether a folder is this user's and no other can change what it holds or put another in its place.

    As in OpenSSH's ``safe_path``: each folder above it belongs to root or to this user, and others may write only to
    those with the sticky bit.
    """
    try:
        found = folder.lstat()
        above = [parent.stat() for parent in folder.resolve().parents]
    except (OSError, RuntimeError):
        return False
    me = os.geteuid()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != me or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    return all(
        one.st_uid in (0, me, _UNMAPPED)
        and (one.st_mode & stat.S_ISVTX or not one.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        for one in above
    )


def runs_programs(folder: Path) -> bool:
    """Tell whether what lies in a folder may be executed: libraries cannot be loaded from a ``noexec`` file system."""
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC
