"""Scan a source that grows: what was seen is known at any time, and in the end it equals a scan of the whole."""

from __future__ import annotations

from typing import BinaryIO

from nccl_triage.ingest.decode import LineReader
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.scan.preview import Note
from nccl_triage.scan.scanner import Scanner


class LiveScan:
    """The scan of a stream that returns None when it has no more yet (``ingest.tail``)."""

    def __init__(self, scanner: Scanner, stream: BinaryIO, info: SourceInfo, note: Note) -> None:
        self.info = info
        self.ended = False
        self._reader = LineReader(stream, info)
        self._blocks = self._reader.raw_blocks()
        self._scan = scanner.begin(self._reader, info)
        self._preview = self._scan.run.start_preview(note)
        self._result: Observations | None = None

    @property
    def open(self) -> bool:
        """Whether a block is open, such as a traceback of which the last line may not have come."""
        return self._preview.open

    def advance(self, most: int) -> bool:
        """Scan what has come, at most so many blocks; return whether there is more."""
        for _ in range(most):
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
                return False
            if not block.data:
                self._scan.catch_up()
                self._preview.active = True
                self._scan.run.preview_waiting()
                self._preview.glance(self._reader.held())
                return False
            self._scan.take(block)
        self._preview.active = False  # reading everything twice would keep the scan behind
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
