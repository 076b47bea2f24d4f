"""Streams that report how many bytes are read from disk or pipe; of compressed ones, the compressed bytes.

Reading can be stopped early: from then on such a stream is at its end.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from nccl_triage.stopping import ReadingStop

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Watch:
    """Counts the bytes of each read of one source; ``early`` once reading was stopped before the end."""

    def __init__(self, count: Callable[[int], None], stop: ReadingStop | None = None) -> None:
        self.count = count
        self.early = False
        self._stop = stop
        self._file: _File | None = None

    def open(self, path: Path) -> BinaryIO:
        """Open a file; a pipe may wait for its writer. Raises OSError."""
        opened = self._within(_File, path)
        if opened is None:
            return io.BytesIO()
        opened.watch, self._file = self, opened
        return cast(BinaryIO, opened)

    def read_into(self, function: Callable[..., int | None], buffer: WriteableBuffer) -> int:
        """Return how many bytes a function has read into the buffer."""
        size = self._within(function, buffer) or 0
        self.count(size)
        return size

    def read(self, function: Callable[[int], bytes | None], size: int) -> bytes:
        """Return the bytes that a function reads."""
        data = self._within(function, size) or b""
        self.count(len(data))
        return data

    def _within(self, function: Callable[..., Any], argument: Any) -> Any:
        """Return the result of a call that may block for long; None once the reading was stopped."""
        if self._stop is None:
            return function(argument)
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

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self.watch.read_into(super().readinto, buffer)

    def read(self, size: int | None = -1) -> bytes:
        return self.watch.read(super().read, -1 if size is None else size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        before = self.tell()
        after = super().seek(offset, whence)
        self.watch.count(after - before)  # what is read again is not counted again
        return after


class _Pipe(io.RawIOBase):
    """What a stream that cannot go back has at the moment."""

    def __init__(self, stream: BinaryIO, watch: Watch) -> None:
        source: Any = stream
        self._read = getattr(source, "readinto1", None) or source.readinto
        self._watch = watch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._watch.read_into(self._read, buffer)


def open_file(path: Path, watch: Watch | None) -> BinaryIO:
    """Open a file without a buffer; raises OSError."""
    return cast(BinaryIO, path.open("rb", buffering=0)) if watch is None else watch.open(path)


def listen(stream: BinaryIO, watch: Watch | None) -> BinaryIO:
    """Return a stream that is read only forwards."""
    return stream if watch is None else cast(BinaryIO, _Pipe(stream, watch))
