"""Reads a source, or one part of a long one, and counts the bytes read.

A part begins at the start of a line and, as far as can be told from the lines before it, not inside a block of lines
(a traceback, a report): merged, the parts give what a scan of the whole gives. A reading may be stopped early.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import BinaryIO, NamedTuple, cast

from nccl_triage.byte_search import Newlines
from nccl_triage.ingest import encodings, watched
from nccl_triage.ingest.compression import TRUNCATED, Limited
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.sources import Source
from nccl_triage.ingest.watched import Watch
from nccl_triage.observations.store import Foresight, Interruption, Observations, SourceInfo
from nccl_triage.parsers import STATEFUL
from nccl_triage.scan.scanner import Scanner
from nccl_triage.scan.source import SNIFF_LINES
from nccl_triage.stopping import ReadingStop

#: Bytes of a part at least: starting a process costs as much as scanning this.
MIN_PART = 24 << 20
#: Bytes of small files that are scanned together, and how many such groups each process gets at least.
MIN_GROUP, MAX_GROUP, GROUPS_EACH = 1 << 20, 16 << 20, 8
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


class SourcePart(NamedTuple):
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
        limited = cast(BinaryIO, Limited(raw, self.end - self.start))
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


def cut(sources: Sequence[Source], jobs: int) -> list[SourcePart]:
    """Return the sources in order, the long ones in parts, as many as there are ``jobs`` at most."""
    whole = sum(source.size or 0 for source in sources)
    parts: list[SourcePart] = []
    for source in sources:
        # Several long files keep all processes busy as they are.
        count = min(jobs, (source.size or 0) // MIN_PART, -(-jobs * (source.size or 0) // whole) if whole else 1)
        parts.extend(_cut(source, count) if count > 1 else [SourcePart(source)])
    return parts


def grouped(parts: Sequence[SourcePart], jobs: int) -> list[list[SourcePart]]:
    """Return the parts in order, small files together: what they hold is then merged before it is sent back.

    A pipe is read by itself: whoever writes to several may wait until each of them is read.
    """
    sizes = [part.source.size or 0 for part in parts]
    least = max(MIN_GROUP, min(MAX_GROUP, sum(sizes) // (jobs * GROUPS_EACH)))
    groups: list[list[SourcePart]] = []
    held = least
    for part, size in zip(parts, sizes, strict=True):
        alone = part.end is not None or not size
        if held >= least or alone:
            groups.append([])
            held = 0
        groups[-1].append(part)
        held += least if alone else size
    return groups


def _cut(source: Source, count: int) -> list[SourcePart]:
    try:
        places = _places(source, count)
    except OSError:  # who reads it says so
        places = []
    if not places:
        return [SourcePart(source)]
    ends = [0, *places, source.size or 0]
    # A file that still grows is read to its end by the last part.
    last = len(ends) - 2
    return [
        SourcePart(replace(source, info=source.info.unread()), start, end if number < last else _OPEN)
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
    """Return the start of a line after a position, if possible one where no block is open."""
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


#: Receives the bytes read so far and the total, None when that is unknown.
Progress = Callable[[int, int | None], None]


class ReadingProgress:
    """The progress of a reading, who receives it, and who may stop it."""

    def __init__(self, size: int | None, progress: Progress | None = None, stop: ReadingStop | None = None) -> None:
        self.progress, self.stop = progress, stop
        self._size, self._done = size, 0

    @property
    def watched(self) -> bool:
        """Whether anybody receives the progress or may stop the reading."""
        return self.progress is not None or self.stop is not None

    @property
    def asked(self) -> bool:
        """Whether a stop was requested."""
        return self.stop is not None and self.stop.asked is not None

    def reached(self, done: int) -> None:
        """Set the number of bytes read."""
        self._done = done
        if self.progress is not None:
            self.progress(done, self._size)

    def further(self, size: int) -> None:
        """Add to the number of bytes read."""
        self.reached(self._done + size)

    def result(self, found: Observations) -> Observations:
        """Return the observations, marked as interrupted where the reading was stopped."""
        stop = self.stop
        if stop is not None and stop.asked is not None and any(info.stopped for info in found.sources.values()):
            found.interruption = Interruption(stop.asked, self._done, self._size)
        return found


def scan_source(
    source: Source, scanner: Scanner, tell: Callable[[int], None] | None = None, stop: ReadingStop | None = None
) -> Observations:
    """Scan one source; reading problems end up in its ``SourceInfo``."""
    return scan_part(SourcePart(source), scanner, tell, stop)


def unread(source: Source) -> Observations:
    """Return the observations of a source that was not reached before a stop."""
    source.info.stopped = True
    return _nothing(source.info)


def scan_part(
    part: SourcePart,
    scanner: Scanner,
    tell: Callable[[int], None] | None = None,
    stop: ReadingStop | None = None,
    foresight: Foresight | None = None,
) -> Observations:
    """Scan a part of a source; lines have the numbers that they have in the whole.

    ``tell`` is told the bytes of each read; ``stop`` may end the reading early; ``foresight`` knows what came before.
    """
    info = part.source.info
    if stop is not None and stop.asked is not None and part.source.size is not None:
        return unread(part.source)
    watch = None if tell is None and stop is None else Watch(tell or _nobody, stop)
    try:
        with part.open(watch) as stream:
            found = _scan(part, stream, scanner, foresight)
    except OSError as error:
        info.problems.append(f"cannot be read: {error.strerror or error}")
        return _nothing(info)
    if watch is not None and watch.early:
        # Its data have an end and its last line, too, only further on.
        info.stopped, info.tail_cut = True, False
        info.problems[:] = [problem for problem in info.problems if not problem.endswith(TRUNCATED)]
    if foresight is not None and part.end is None:
        foresight.note(found)
    return found


def _scan(part: SourcePart, stream: BinaryIO, scanner: Scanner, foresight: Foresight | None) -> Observations:
    info = part.source.info
    result = None if foresight is None else foresight.begin()
    if not part.start:
        return scanner.scan_blocks(LineReader(stream, info), info, result=result, at_end=part.at_end)
    reader = LineReader(stream, info, first_line=part.lines_before() + 1)
    return scanner.scan_blocks(reader, info, part.first_lines(), result, part.at_end)


def _nothing(info: SourceInfo) -> Observations:
    """Return what was observed in a source that was not read."""
    found = Observations()
    found.add_source(info)
    return found


def _nobody(size: int) -> None:
    """Discard the number of bytes."""
