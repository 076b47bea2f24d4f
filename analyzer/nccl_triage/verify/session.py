"""Makes a verification safe to start: one at a time, in one folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nccl_triage.errors import OutputError, UsageError

_POLL = 0.1


@dataclass(frozen=True, slots=True)
class Held:
    """The lock of a session: its files, and a note when the host could not be locked."""

    paths: tuple[Path, ...]
    note: str | None = None


@contextlib.contextmanager
def lock(folder: Path | None = None, *, wait: float = 0.0) -> Iterator[Held]:
    """Hold the user's lock of this host; the lock of a dead process is free.

    ``folder`` is tried first; without it, or when it cannot be written, the user's runtime folder and the temporary one
    are both locked, because a login has the first and a batch job may not. Waits up to ``wait`` seconds.
    Raises UsageError while another verifier holds it.
    """
    deadline = time.monotonic() + wait
    with contextlib.ExitStack() as held:
        while True:
            try:
                paths = _take_all(folder, held)
                break
            except _TakenError as taken:
                held.close()
                if time.monotonic() >= deadline:
                    raise _taken(taken) from None
                time.sleep(min(_POLL, wait))
        note = None if paths else "no folder for a lock is writable: two simultaneous verifications would go unnoticed"
        yield Held(tuple(paths), note)


class _TakenError(Exception):
    """Another process holds the lock; carries the file and the process id as written there, if any."""

    def __init__(self, path: Path, pid: str) -> None:
        super().__init__(pid)
        self.path, self.pid = path, pid


def _taken(taken: _TakenError) -> UsageError:
    return UsageError(
        "another verifier runs here (pid {pid})",
        cause="it holds {path}; two at once would disturb each other's measurements",
        remedy="wait until it has ended, or let this one wait: --wait SECONDS",
        pid=taken.pid or "?",
        path=taken.path,
    )


def _take_all(folder: Path | None, held: contextlib.ExitStack) -> list[Path]:
    if folder is not None:
        path = _take(folder, held)
        if path is not None:
            return [path]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folders = [*([Path(runtime)] if runtime else []), Path(tempfile.gettempdir())]
    paths = [_take(each, held) for each in dict.fromkeys(folders)]
    return [path for path in paths if path is not None]


def _take(folder: Path, held: contextlib.ExitStack) -> Path | None:
    """Lock the file in a folder, or return None when the folder does not serve; raises _TakenError."""
    path = folder / f"nccl-triage-verify-{os.getuid()}.lock"
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise _TakenError(path, pid) from None
        except OSError:  # a file system without locks
            os.close(descriptor)
            return None
        if _is(path, descriptor):
            break
        os.close(descriptor)  # removed by its former holder between our open and our lock
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
        os.close(descriptor)
        return None
    held.callback(_release, path, descriptor)
    with contextlib.suppress(OSError):  # a full disk: the lock holds, only its owner is not named
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return path


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _release(path: Path, descriptor: int) -> None:
    # Removed while it is still locked: whoever waits for this file sees that it is gone and makes a new one.
    with contextlib.suppress(OSError):
        if _is(path, descriptor):
            path.unlink()
    os.close(descriptor)


@contextlib.contextmanager
def workspace(wanted: Path | None, keep: bool = False, *, force: bool = False) -> Iterator[Path]:
    """Give the one folder that a session writes to.

    The wanted one is made when absent, must be empty unless ``force``, and stays; otherwise a temporary one (mode 0700),
    which is removed at the end unless ``keep``; what a session that was killed left there is removed first.
    Raises UsageError, OutputError.
    """
    if wanted is not None:
        yield _given(wanted, force)
        return
    _remove_stale()
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        held = _hold(folder)
    except OSError as error:
        raise OutputError(
            "no temporary folder can be made for the logs of the ranks",
            cause="{why}",
            remedy="set TMPDIR, or name a folder for the logs",
            why=error,
        ) from None
    try:
        yield folder
    finally:
        if keep:
            (folder / _HELD).unlink(missing_ok=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


#: What temporary folders begin with, and the file in each that its session keeps locked: the kernel ends the lock of a
#: process that is killed.
_PREFIX, _HELD = "nccl-triage-verify-", ".held"


def _hold(folder: Path) -> int:
    """Lock a folder for as long as this process lives; returns the descriptor. It has its name only when it is locked."""
    new = folder / f"{_HELD}.new"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a file system without locks: nobody could tell whether the session still runs
        new.unlink()
        return descriptor
    new.rename(folder / _HELD)
    return descriptor


def _remove_stale() -> None:
    """Remove the temporary folders of this user's sessions that were killed before they could do so."""
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            info = folder.lstat()
            if stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and _is_free(folder / _HELD):
                shutil.rmtree(folder, ignore_errors=True)


def _is_free(path: Path) -> bool:
    """Tell whether a file that its session keeps locked is there, and is not locked."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _given(folder: Path, force: bool) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        used = any(folder.iterdir())
    except OSError as error:
        raise OutputError(
            "{folder} cannot hold the logs of the ranks",
            cause="{why}",
            remedy="name another folder",
            folder=folder,
            why=error.strerror,
        ) from None
    if used and not force:
        raise UsageError(
            "{folder} is not empty",
            cause="logs of an earlier session would be mistaken for those of this one",
            remedy="name a new folder, or add --force",
            folder=folder,
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError("{folder} cannot be written", remedy="name another folder", folder=folder)
    return folder.resolve()
