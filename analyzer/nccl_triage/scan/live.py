"""Scan a source that grows: what was seen is known at any time, and in the end it equals a scan of the whole.

A scan takes lines in batches, which makes its result independent of when they came. The lines that wait for their batch
are read before it is complete, into observations that are thrown away as soon as the scan itself has come that far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

from nccl_triage.ingest.decode import LineReader
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Bucket, Observations, SourceInfo
from nccl_triage.scan.lines import LineScan, TextLine
from nccl_triage.scan.prefilter import Prefilter
from nccl_triage.scan.scanner import Scanner

#: Called with every event as soon as its line has come, and with who printed lines that no signature knows.
Note = Callable[[Event], None]


class _ReportingObservations(Observations):
    """Observations that report each event that is added."""

    __slots__ = ("_note",)

    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note

    def add(self, event: Event, keep_by: Iterable[str] = ()) -> Bucket | None:
        self._note(event)
        return super().add(event, keep_by)


class WaitingLines:
    """Reads the lines that wait for their batch; ``note`` may be called twice with an event."""

    def __init__(self, prefilter: Prefilter, note: Note) -> None:
        #: Whether waiting lines are read: not while the end of a long log is still far.
        self.active = False
        self._prefilter = prefilter
        self._note = note
        self._scan: LineScan | None = None
        self._read = 0

    def take(self, scan: LineScan, waiting: Sequence[TextLine], sniff: Callable[[LineScan], None] | None) -> None:
        """Read what is new of the lines that wait; ``sniff`` learns what the source is while that is not known."""
        if not self.active or (self._scan is not None and len(waiting) == self._read):
            return
        if self._scan is None or sniff is not None:
            self._scan, self._read = scan.continued(_ReportingObservations(self._note)), 0
            if sniff is not None:
                sniff(self._scan)
        self.glance(waiting[self._read :])
        self._read = len(waiting)

    def glance(self, lines: Sequence[TextLine]) -> None:
        """Read the current state of lines that are still redrawn: the scan may never see it."""
        if self._scan is None:
            return
        kinds = self._prefilter.kinds([line.text for line in lines])
        for index, line in enumerate(lines):
            self._scan.take(line.number, line.text, kinds.get(index), speaks=True)

    def drop(self) -> None:
        """Forget what was read: the scan has read it."""
        self._scan, self._read = None, 0

    @property
    def open(self) -> bool:
        """Whether a block is open, such as a traceback of which the last line may not have come."""
        return self._scan is not None and self._scan.events.open

    def observations(self) -> Iterator[Observations]:
        """Yield what was read, and what open blocks tell so far."""
        if self._scan is not None:
            self._scan.settle()
            yield self._scan.result
            yield self._scan.unfinished()


class LiveScan:
    """The scan of a stream that returns None when it has no more yet (``ingest.tail``)."""

    def __init__(self, scanner: Scanner, stream: BinaryIO, info: SourceInfo, note: Note) -> None:
        self.info = info
        self.ended = False
        self._reader = LineReader(stream, info)
        self._blocks = self._reader.raw_blocks()
        self._scan = scanner.begin(self._reader, info)
        self._waiting = WaitingLines(self._scan.run.prefilter, note)
        self._scan.run.preview = self._waiting
        self._result: Observations | None = None

    @property
    def open(self) -> bool:
        """Whether a block is open, such as a traceback of which the last line may not have come."""
        return self._waiting.open

    def advance(self, most: int) -> bool:
        """Scan what has come, at most so many blocks; return whether there is more."""
        for _ in range(most):
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
                return False
            if not block.data:
                self._scan.catch_up()
                self._waiting.active = True
                self._scan.run.preview_waiting()
                self._waiting.glance(self._reader.held())
                return False
            self._scan.take(block)
        self._waiting.active = False  # reading everything twice would keep the scan behind
        return True

    def so_far(self) -> Observations:
        """Return what was seen. It shares tables with this scan, so it must be used before the next step."""
        if self._result is not None:
            return self._result
        found = Observations()
        found.add_source(self.info)
        for part in self._scan.run.so_far():
            found.absorb(part)
        return found

    def finish(self) -> Observations:
        """Scan the rest of the source, which has ended, and return what was seen."""
        if self._result is None:
            for block in self._blocks:
                if block.data:
                    self._scan.take(block)
            self._result = self._scan.finish()
        return self._result
