"""Read what is added to a log: files that grow, are rotated, truncated or replaced, and pipes.

Both streams here say with None that there is no more yet, as raw streams do, and with 0 that there will never be.
Files are asked by ``stat`` again and again: notification does not work on the shared file systems of clusters. Only those
that were read last stay open, so that thousands may be followed; of these nothing is lost when they are deleted. A moved
file is found by its inode.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

#: Last bytes read that are compared before more is read: a file that is written anew may have grown past them.
_REMEMBERED = 256
#: Bytes that a pipe may hold while we are busy, where the system lets us say so.
_PIPE_SIZE = 1 << 20

#: Files that stay open, the one that was read last at the end, and how many.
_held: dict[FileTail, None] = {}
_MOST_HELD = 64

Change = Literal["none", "grown", "cut", "replaced", "gone"]
Key = tuple[int, int]


def key_of(state: os.stat_result) -> Key:
    """Return what tells a file from others, whatever it is called."""
    return state.st_dev, state.st_ino


class FileTail(io.RawIOBase):
    """A file that grows. Raises OSError when it is not there at the beginning, or no regular file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        self.path = path
        self.key = key_of(state)
        #: When the file was last written, by the clock of its file system.
        self.written = state.st_mtime
        #: Whether nothing more will be read after what there is; whether not even that can be read any more.
        self.ended = self.lost = False
        self._real = Path(os.path.realpath(path))
        self._position = 0
        self._limit: int | None = None
        self._last = b""
        self._file: BinaryIO | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read on; None at the end of a file that may grow, 0 at that of one that ended."""
        file = self._file or self._open()
        if file is not None:
            view = memoryview(buffer).cast("B")
            if self._limit is not None:
                view = view[: max(0, self._limit - self._position)]
            size = file.readinto(view) or 0  # type: ignore[attr-defined]
            if size:
                self._position += size
                self._last = (self._last + bytes(view[max(0, size - _REMEMBERED) : size]))[-_REMEMBERED:]
                return int(size)
            self._hold()
        return 0 if self.ended else None

    def stop(self) -> None:
        """Read no further than to where the file ends now."""
        try:
            self._limit = (self.path.stat() if self._file is None else os.fstat(self._file.fileno())).st_size
        except OSError:
            self._limit = self._position

    def give_up(self) -> None:
        """Read no more: what was not read is gone."""
        self.ended = self.lost = True
        self._shut()

    def close(self) -> None:
        """Close the file if it is open."""
        self._shut()
        super().close()

    def look(self) -> Change:
        """Tell what has become of the file since it was read."""
        try:
            state = self.path.stat()
        except OSError:
            return "gone"
        same = key_of(state) == self.key
        if same and state.st_size == self._position and state.st_mtime == self.written:
            return "none"
        if not stat.S_ISREG(state.st_mode) or state.st_size < self._position or not self._goes_on(self.path):
            return "cut" if same else "replaced"
        # A copy that has replaced the file and begins with all that was read is the same log (rsync).
        if not same:
            self._shut()
        self.key, self.written = key_of(state), state.st_mtime
        return "grown" if state.st_size > self._position else "none"

    def has_more(self) -> bool:
        """Tell whether the file, which may be deleted by now, is open and holds more than was read."""
        return self._file is not None and os.fstat(self._file.fileno()).st_size > self._position

    def moved(self) -> Path | None:
        """Return where the file lies that was read, when its name belongs to another one now."""
        places = [self._real]
        try:
            with os.scandir(self._real.parent) as entries:
                places += [Path(entry.path) for entry in entries if entry.inode() == self.key[1]]
        except OSError:
            pass
        return next((place for place in places if self.lies_at(place)), None)

    def go_to(self, path: Path) -> None:
        """Read on under another name of the same file."""
        self.path = self._real = path

    def lies_at(self, path: Path) -> bool:
        """Tell whether a path leads to the file that was read: another one may have the inode of one that is gone."""
        try:
            state = path.stat()
        except OSError:
            return False
        return key_of(state) == self.key and state.st_size >= self._position and self._goes_on(path)

    def _goes_on(self, path: Path) -> bool:
        """Tell whether what was read last stands in a file."""
        if not self._last:
            return True
        try:
            with _opened(path) as file:
                file.seek(self._position - len(self._last))
                return file.read(len(self._last)) == self._last
        except OSError:
            return False

    def _open(self) -> BinaryIO | None:
        """Open the file where reading has stopped; None when another file lies there by now."""
        if self.lost:
            return None
        try:
            file = _opened(self.path)
        except OSError:
            return None
        state = os.fstat(file.fileno())
        if key_of(state) != self.key or not stat.S_ISREG(state.st_mode):
            file.close()
            return None
        file.seek(self._position)
        self._file = file
        return file

    def _hold(self) -> None:
        """Keep the file open, unless many others are read."""
        if self.ended or self._file is None:
            self._shut()
            return
        _held.pop(self, None)
        _held[self] = None
        if len(_held) > _MOST_HELD:
            next(iter(_held))._shut()

    def _shut(self) -> None:
        _held.pop(self, None)
        if self._file is not None:
            self._file.close()
            self._file = None


def _opened(path: Path) -> BinaryIO:
    """Open a file; a pipe that has its name by now keeps nobody waiting. Raises OSError."""
    return cast(BinaryIO, io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)))


class PipeTail(io.RawIOBase):
    """A pipe that stays open: standard input, or a named one that may have no writer yet."""

    def __init__(self, descriptor: int, *, named: bool = False) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.ended = False
        self._named = named
        self._begun = self._stopped = False
        _widen(descriptor)

    def stop(self) -> None:
        """Stop reading: the writer may never stop."""
        self.ended = self._stopped = True

    @classmethod
    def named(cls, path: Path) -> PipeTail:
        """Open a named pipe without waiting for its writer; raises OSError."""
        return cls(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), named=True)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what there is; None when nothing has come yet, 0 when the last writer has left."""
        if self._stopped or not self._ready():
            return 0 if self.ended else None
        try:
            size = os.readv(self.descriptor, [buffer])
        except BlockingIOError:
            return None
        if size:
            self._begun = True
        elif self._named and not self._begun and not self.ended:
            return None  # nobody has opened it for writing
        return size

    def close(self) -> None:
        """Close a named pipe; standard input stays open."""
        if self._named and not self.closed:
            os.close(self.descriptor)
        super().close()

    def _ready(self) -> bool:
        watch = select.poll()
        watch.register(self.descriptor, select.POLLIN | select.POLLHUP)
        return bool(watch.poll(0))


def _widen(descriptor: int) -> None:
    """Let a pipe hold more, so that its writer need not wait while a diagnosis is made."""
    import fcntl

    try:
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    except (OSError, AttributeError):  # no pipe, not allowed, or not Linux
        return
