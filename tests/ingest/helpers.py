"""Streams and readers that the tests of this folder share."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from nccl_triage.ingest.decode import LineReader, LogLine
from nccl_triage.observations.store import SourceInfo


class Pieces(io.RawIOBase):
    """A pipe: each read returns one of the given pieces, whatever room there is."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


class Repeated(io.RawIOBase):
    """``count`` bytes that repeat a pattern, made when they are read."""

    def __init__(self, pattern: bytes, count: int, end: bytes = b"") -> None:
        self._pattern = pattern * (1 + (1 << 20) // len(pattern))
        self._period = len(pattern)
        self._count = count
        self._end = end
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._count - self._at, 1 << 20)
        if size <= 0:
            size = min(len(buffer), len(self._end))
            buffer[:size] = self._end[:size]
            self._end = self._end[size:]
            return size
        start = self._at % self._period
        buffer[:size] = self._pattern[start : start + size]
        self._at += size
        return size


def read_lines(data: bytes | io.RawIOBase, **options: int) -> tuple[list[LogLine], SourceInfo]:
    """Return the lines of data and what was learned about the source."""
    info = SourceInfo(path="x.log")
    stream: Any = io.BytesIO(data) if isinstance(data, bytes) else data
    return list(LineReader(stream, info, **options)), info


def texts(data: bytes | io.RawIOBase, **options: int) -> list[str]:
    """Return the texts of the lines of data."""
    return [line.text for line in read_lines(data, **options)[0]]
