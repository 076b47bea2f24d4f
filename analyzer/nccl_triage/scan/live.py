"""Scan a source that grows: what was seen is known at any time, and at the end it is what one scan of the whole sees."""

from __future__ import annotations

from typing import BinaryIO

from nccl_triage.ingest.decode import LineReader
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.scan.preview import Note
from nccl_triage.scan.scanner import Scanner


class LiveScan:
    """The scan of a stream that says with None that it has no more yet (``ingest.tail``)."""

    def __init__(self, scanner: Scanner, stream: BinaryIO, info: SourceInfo, note: Note) -> None:
        self.info = info
        self.ended = False
        self._reader = LineReader(stream, info)
        self._blocks = self._reader.raw_blocks()
        self._scan = scanner.begin(self._reader, info)
        self._ahead = self._scan.run.listen(note)
        self._result: Observations | None = None

    @property
    def open(self) -> bool:
        """Whether a block is open, such as a traceback of which the last line may not have come."""
        return self._ahead.open

    def advance(self, most: int) -> bool:
        """Scan what has come, at most so many blocks; return whether there is more."""
        for _ in range(most):
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
                return False
            if not block.data:
                self._scan.catch_up()
                self._ahead.active = True
                self._scan.run.hear()
                self._ahead.glance(self._reader.held())
                return False
            self._scan.take(block)
        self._ahead.active = False  # reading all twice would keep us behind
        return True

    def so_far(self) -> Observations:
        """Return what was seen; it shares with this scan what only grows, and is to be looked at before the next step."""
        if self._result is not None:
            return self._result
        found = Observations()
        found.add_source(self.info)
        for part in self._scan.run.so_far():
            found.absorb(part)
        return found

    def finish(self) -> Observations:
        """Scan what is left of the source, of which no more comes, and return what was seen."""
        if self._result is None:
            for block in self._blocks:
                if block.data:
                    self._scan.take(block)
            self._result = self._scan.finish()
        return self._result
