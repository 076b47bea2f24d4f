"""Read regular files of bounded size, whatever others have put at their path; replace files atomically."""

from __future__ import annotations

import errno
import os
import stat
from os import PathLike
from pathlib import Path


class NotRegular(OSError):
    """The path leads to a folder, pipe, socket or device."""


class TooLarge(OSError):
    """The file has more bytes than were asked for."""


def read_regular(path: str | PathLike[str], limit: int) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes.

    Raises NotRegular, TooLarge or another OSError. Neither a pipe without a writer nor a device without an end holds
    this up.
    """
    return read_with_state(path, limit)[0]


def read_with_state(path: str | PathLike[str], limit: int) -> tuple[bytes, os.stat_result]:
    """Return the content as ``read_regular`` does, and the state of the very file that was read."""
    # Non-blocking: the path may lead to a pipe. Checked before opening, too: opening some devices has effects.
    _refuse_special(Path(path).stat())
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as stream:
        state = os.fstat(descriptor)
        _refuse_special(state)
        # Files of /proc tell no size: what is read counts.
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise TooLarge(errno.EFBIG, "the file is too large")
    return data, state


def _refuse_special(state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise NotRegular(errno.EINVAL, "it is no regular file")


def replace(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace a file atomically: an interruption leaves the old one, and nothing half written.

    Without a ``mode`` the new file has the permissions of the old one, or those that the umask leaves.
    """
    temporary = path.with_name(f".nccl-triage-{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if mode is None and path.exists():
                os.fchmod(stream.fileno(), stat.S_IMODE(path.stat().st_mode))
            stream.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
