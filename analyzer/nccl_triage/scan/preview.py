"""Read the lines of a growing source that wait for their batch, before the batch is complete.

A scan takes lines in batches, which makes its result independent of when they came. What waits is read into observations
that are thrown away as soon as the scan itself has come that far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Bucket, Observations
from nccl_triage.scan.lines import LineScan, TextLine
from nccl_triage.scan.prefilter import Prefilter

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


class Preview:
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
