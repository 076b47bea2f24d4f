"""Streams that report how many bytes are read from disk or pipe; of compressed ones, the compressed bytes.

Reading can be stopped early: from then on a file is at its end, and a pipe once what it holds has been read.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from nccl_triage.stopping import ReadingStop

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


#: Bytes of a pipe that are still read once reading was stopped: all that it holds, however fast its writer is.
_REST = 1 << 20


class Watch:
    """Counts the bytes of each read of one source; ``early`` once reading was stopped before the end."""

    def __init__(self, count: Callable[[int], None], stop: ReadingStop | None = None) -> None:
        self.count = count
        self.early = False
        self._rest = _REST
        self._stop = stop
        self._file: _File | None = None

    def open(self, path: Path) -> BinaryIO:
        """Open a file; a pipe may wait for its writer. Raises OSError."""
        opened = self._within(_File, path)
        if opened is None and path.is_fifo():
            opened = _File(path, opener=_without_waiting)
        if opened is None:
            return io.BytesIO()
        opened.watch, self._file = self, opened
        opened.pipe = opened.fileno() if stat.S_ISFIFO(os.fstat(opened.fileno()).st_mode) else None
        return cast(BinaryIO, opened)

    def read_into(self, function: Callable[..., int | None], buffer: WriteableBuffer, pipe: int | None) -> int:
        """Return how many bytes a function has read into the buffer, of a ``pipe`` if it has a number."""
        size = self._within(function, buffer, pipe) or 0
        self._took(size)
        return size

    def read(self, function: Callable[[int], bytes | None], size: int, pipe: int | None) -> bytes:
        """Return the bytes that a function reads, of a ``pipe`` if it has a number."""
        data = self._within(function, size, pipe) or b""
        self._took(len(data))
        return data

    def raw(self, stream: BinaryIO) -> Any:
        """Return a stream without its buffer where reading may be stopped: nobody sees what waits in a buffer."""
        return stream if self._stop is None else getattr(stream, "raw", stream)

    def _took(self, size: int) -> None:
        self.count(size)
        if self._stop is not None and self._stop.asked is not None:
            self._rest -= size

    def _within(self, function: Callable[..., Any], argument: Any, pipe: int | None = None) -> Any:
        """Return the result of a call that may block for long; None once the reading was stopped."""
        if self._stop is None:
            return function(argument)
        if pipe is not None:
            if self._stop.wait(pipe) and self._rest > 0:
                return function(argument)
            self.early = True
            return None
        found, ended = self._stop.call(function, argument)
        self.early = self.early or (ended and not self._all_read())
        return found

    def _all_read(self) -> bool:
        """Tell whether nothing of a file is left."""
        try:
            return self._file is not None and self._file.tell() >= os.fstat(self._file.fileno()).st_size
        except OSError:  # a pipe
            return False


class _File(io.FileIO):
    """A file, read without a buffer."""

    watch: Watch
    pipe: int | None

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self.watch.read_into(super().readinto, buffer, self.pipe)

    def read(self, size: int | None = -1) -> bytes:
        return self.watch.read(super().read, -1 if size is None else size, self.pipe)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        before = self.tell()
        after = super().seek(offset, whence)
        self.watch.count(after - before)  # what is read again is not counted again
        return after


class _Pipe(io.RawIOBase):
    """What a stream that cannot go back has at the moment."""

    def __init__(self, stream: BinaryIO, watch: Watch) -> None:
        source = watch.raw(stream)
        self._read = getattr(source, "readinto1", None) or source.readinto
        self._watch = watch
        try:
            self._descriptor: int | None = source.fileno()
        except OSError:  # of bytes in memory
            self._descriptor = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._watch.read_into(self._read, buffer, self._descriptor)


def _without_waiting(path: str, flags: int) -> int:
    """Open a pipe whose writer may never come (an opener of ``open``)."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_file(path: Path, watch: Watch | None) -> BinaryIO:
    """Open a file without a buffer; raises OSError."""
    return cast(BinaryIO, path.open("rb", buffering=0)) if watch is None else watch.open(path)


def listen(stream: BinaryIO, watch: Watch | None) -> BinaryIO:
    """Return a stream that is read only forwards."""
    return stream if watch is None else cast(BinaryIO, _Pipe(stream, watch))
