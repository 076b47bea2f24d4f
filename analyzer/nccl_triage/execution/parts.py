"""Cut long logs into parts that several processes scan: what the parts tell, merged, is what the whole tells.

A part begins where a line begins and, as far as can be told from what stands before it, no block of lines (a traceback,
a report) is open. Only plain files can be cut: of compressed data, and of UTF-16, the middle cannot be read alone.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import BinaryIO, cast

from nccl_triage.byte_search import Newlines
from nccl_triage.ingest import encodings, watched
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.sources import Source
from nccl_triage.ingest.watched import Watch
from nccl_triage.observations.store import SourceInfo
from nccl_triage.parsers import STATEFUL
from nccl_triage.scan.source import SNIFF_LINES

#: Bytes of a part at least: starting a process costs as much as scanning this.
MIN_PART = 24 << 20
#: Bytes before a part in which nothing may open a block, and in which such a place is looked for.
_CALM, _WINDOW = 8 << 10, 2 << 20
_CHUNK = 1 << 20
#: Processes that are started unasked, what a login node bears; and bytes for each: below, what the first lines of each
#: process of a job cost is paid twice, and merging on top (``make bench``).
MAX_UNASKED, PAYS = 4, 256 << 20
#: Bytes at the ends of a log that are read line by line, and how many times as long as the rest of it they take.
ENDS, SLOWER = 1 << 20, 16
#: The end of the last part: as far as the file goes when it is read.
_OPEN = 1 << 62
_OPENERS = tuple(sorted({opener.encode() for parser in STATEFUL for opener in parser.OPENERS}))


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes of a source from ``start`` to ``end``; all of them without an end."""

    source: Source
    start: int = 0
    end: int | None = None

    def open(self, watch: Watch | None) -> BinaryIO:
        """Return the bytes; raises OSError."""
        if self.end is None or self.source.file is None:
            return self.source.open(watch)
        raw = watched.open_file(self.source.file, None)
        raw.seek(self.start)
        limited = cast(BinaryIO, _Limited(raw, self.end - self.start))
        return watched.listen(limited, watch)

    @property
    def at_end(self) -> bool:
        """Whether the end of the source is in it."""
        return self.end is None or self.end >= _OPEN

    def lines_before(self) -> int:
        """Return how many lines end before the part."""
        lines, left, newlines = 0, self.start, Newlines()
        if self.source.file is not None and left:
            with self.source.file.open("rb", buffering=0) as stream:
                while left > 0 and (data := stream.read(min(left, _CHUNK))):
                    lines += newlines.count(data, 0, len(data))
                    left -= len(data)
        return lines

    def first_lines(self) -> list[str]:
        """Return the first lines of the whole source, which tell what it is."""
        with self.source.open() as stream:
            reader = LineReader(stream, SourceInfo(self.source.path))
            return [line.text for line in islice(reader, SNIFF_LINES)]


class _Limited(io.RawIOBase):
    """Some bytes of a file, from where it stands."""

    def __init__(self, raw: BinaryIO, size: int) -> None:
        self._raw, self._left = raw, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)[: self._left]  # type: ignore[arg-type]
        size = cast(io.RawIOBase, self._raw).readinto(view) or 0
        self._left -= size
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


def worthwhile(sources: Sequence[Source]) -> int:
    """Return how many processes pay for these sources on this machine."""
    sizes = [source.size or 0 for source in sources]
    if len(sizes) > 1:  # of one log both halves would read as many lines again
        sizes = [size + (SLOWER - 1) * min(size, ENDS) for size in sizes]
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        processors = os.cpu_count() or 1
    return max(1, min(MAX_UNASKED, processors, sum(sizes) // PAYS))


def cut(sources: Sequence[Source], jobs: int) -> list[Part]:
    """Return the sources in order, the long ones in parts, as many as there are ``jobs`` at most."""
    whole = sum(source.size or 0 for source in sources)
    parts: list[Part] = []
    for source in sources:
        # Several long files keep all processes busy as they are.
        count = min(jobs, (source.size or 0) // MIN_PART, -(-jobs * (source.size or 0) // whole) if whole else 1)
        parts.extend(_cut(source, count) if count > 1 else [Part(source)])
    return parts


def _cut(source: Source, count: int) -> list[Part]:
    try:
        places = _places(source, count)
    except OSError:  # who reads it says so
        places = []
    if not places:
        return [Part(source)]
    ends = [0, *places, source.size or 0]
    # A file that still grows is read to its end by the last part.
    last = len(ends) - 2
    return [
        Part(replace(source, info=source.info.unread()), start, end if number < last else _OPEN)
        for number, (start, end) in enumerate(pairwise(ends))
    ]


def _places(source: Source, count: int) -> list[int]:
    """Return where the parts of a file begin, but for the first; nothing for a file that is not to be cut."""
    if source.file is None or not source.rereadable or source.only_whole():
        return []
    size = source.size or 0
    found: list[int] = []
    with source.file.open("rb", buffering=0) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return []
        if encodings.wide_encoding(stream.read(_CALM)) is not None:
            return []
        for number in range(1, count):
            place = _place(stream, number * size // count)
            if place is not None and place > (found[-1] if found else 0):
                found.append(place)
    return found


def _place(stream: io.FileIO, wish: int) -> int | None:
    """Return where a line begins behind a position, better one where no block is open."""
    base = max(0, wish - _CALM)
    stream.seek(base)
    window = stream.read(_WINDOW)
    at = window.find(b"\n", wish - base) + 1
    first = at
    while at:
        opened = max(window.rfind(opener, max(0, at - _CALM), at) for opener in _OPENERS)
        if opened < 0:
            return base + at
        at = window.find(b"\n", opened + _CALM) + 1
    return base + first if first else None
