"""Read one source, or a part of it, and count what was read; somebody may ask for the end before it is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from nccl_triage.execution.parts import Part
from nccl_triage.ingest.compression import TRUNCATED
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.sources import Source
from nccl_triage.ingest.watched import Watch
from nccl_triage.observations.store import Foresight, Interruption, Observations, SourceInfo
from nccl_triage.scan.scanner import Scanner
from nccl_triage.stopping import ReadingStop

#: Is told the bytes that have been read and those that there are, None when that is not known.
Progress = Callable[[int, int | None], None]


class Reading:
    """How far the reading is, who is told, and who may end it."""

    def __init__(self, size: int | None, progress: Progress | None = None, stop: ReadingStop | None = None) -> None:
        self.progress, self.stop = progress, stop
        self._size, self._done = size, 0

    @property
    def watched(self) -> bool:
        """Whether anybody wants to know how far it is."""
        return self.progress is not None or self.stop is not None

    @property
    def asked(self) -> bool:
        """Whether the reading is to end."""
        return self.stop is not None and self.stop.asked is not None

    def reached(self, done: int) -> None:
        """Take how many bytes have been read."""
        self._done = done
        if self.progress is not None:
            self.progress(done, self._size)

    def further(self, size: int) -> None:
        """Take how many more bytes have been read."""
        self.reached(self._done + size)

    def result(self, found: Observations) -> Observations:
        """Return what was found, marked where the reading ended before its time."""
        stop = self.stop
        if stop is not None and stop.asked is not None and any(info.stopped for info in found.sources.values()):
            found.interruption = Interruption(stop.asked, self._done, self._size)
        return found


def scan_source(
    source: Source, scanner: Scanner, tell: Callable[[int], None] | None = None, stop: ReadingStop | None = None
) -> Observations:
    """Scan one source; reading problems end up in its ``SourceInfo``."""
    return scan_part(Part(source), scanner, tell, stop)


def unread(source: Source) -> Observations:
    """Return what is known of a source when the reading ended before its turn."""
    source.info.stopped = True
    return _nothing(source.info)


def scan_part(
    part: Part,
    scanner: Scanner,
    tell: Callable[[int], None] | None = None,
    stop: ReadingStop | None = None,
    foresight: Foresight | None = None,
) -> Observations:
    """Scan a part of a source; lines have the numbers that they have in the whole.

    ``tell`` is told the bytes of each read; ``stop`` may end the reading early; ``foresight`` knows what came before.
    """
    info = part.source.info
    if stop is not None and stop.asked is not None:
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


def _scan(part: Part, stream: BinaryIO, scanner: Scanner, foresight: Foresight | None) -> Observations:
    info = part.source.info
    rooms = None if foresight is None else foresight.rooms()
    if not part.start:
        return scanner.scan_blocks(LineReader(stream, info), info, rooms=rooms, at_end=part.at_end)
    reader = LineReader(stream, info, first_line=part.lines_before() + 1)
    return scanner.scan_blocks(reader, info, part.first_lines(), rooms, part.at_end)


def _nothing(info: SourceInfo) -> Observations:
    """Return what was observed in a source that was not read."""
    found = Observations()
    found.add_source(info)
    return found


def _nobody(size: int) -> None:
    """Tell nobody."""
