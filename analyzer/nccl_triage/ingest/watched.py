"""Streams that tell how many bytes are read from them, on disk or from the pipe: compressed ones count as they lie."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Is told the bytes of each read.
Watch = Callable[[int], None]


class _File(io.FileIO):
    """A file, read without a buffer."""

    watch: Watch

    def readinto(self, buffer: WriteableBuffer) -> int:
        size = super().readinto(buffer) or 0
        self.watch(size)
        return size

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(-1 if size is None else size) or b""
        self.watch(len(data))
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        before = self.tell()
        after = super().seek(offset, whence)
        self.watch(after - before)  # what is read again is not counted again
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
        size = int(self._read(buffer) or 0)
        self._watch(size)
        return size


def open_file(path: Path, watch: Watch | None) -> BinaryIO:
    """Open a file without a buffer; raises OSError."""
    if watch is None:
        return cast(BinaryIO, path.open("rb", buffering=0))
    file = _File(path)
    file.watch = watch
    return cast(BinaryIO, file)


def listen(stream: BinaryIO, watch: Watch | None) -> BinaryIO:
    """Return a stream that is read only forwards."""
    return stream if watch is None else cast(BinaryIO, _Pipe(stream, watch))
