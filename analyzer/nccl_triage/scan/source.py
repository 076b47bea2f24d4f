"""Scan one source: its lines in batches, and blocks of lines that are only looked through.

Blocks that span lines (tracebacks, torchelastic reports) go to stateful parsers; text that was hard-wrapped by a
terminal is matched again joined. The result is bounded (``events.Observations``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nccl_triage.events import Observations, SourceInfo
from nccl_triage.ingest.blocks import Block
from nccl_triage.ingest.decode import Line, LineReader
from nccl_triage.ingest.filtered import looks_filtered
from nccl_triage.parsers.series import SeriesReader
from nccl_triage.parsers.wrappers import WrapperProfile
from nccl_triage.scan import sweeping
from nccl_triage.scan.ahead import Ahead, Note
from nccl_triage.scan.lines import RECORD, LineScan, TextLine
from nccl_triage.scan.prefilter import Prefilter
from nccl_triage.scan.unwrap import joined_candidates

#: Lines looked at to learn which ambiguous prefixes a source uses, and whether it is the output of grep.
SNIFF_LINES = 400
#: Lines per prefilter call, and characters after which a batch is full anyway.
BATCH_LINES = 2000
BATCH_CHARACTERS = 1 << 18
#: Lines at either end of a batch that are looked at only to learn which ranks speak at all.
SPEAKER_LINES = 40


class SourceScan:
    """The state of scanning one source."""

    def __init__(self, prefilter: Prefilter, series: SeriesReader, info: SourceInfo) -> None:
        #: Reads what waits while the source still grows, if somebody wants to know.
        self.ahead: Ahead | None = None
        self._prefilter = prefilter
        self._info = info
        self._lines = LineScan(prefilter, series, info)
        self._news = sweeping.News()
        self._batch: list[TextLine] = []
        self._size = 0
        self._begun = False

    def read(self, lines: Iterable[TextLine]) -> None:
        """Scan lines, in batches that may go on with the next ones."""
        batch, size = self._batch, self._size
        for line in lines:
            batch.append(line)
            size += len(line.text)
            if len(batch) >= BATCH_LINES or size >= BATCH_CHARACTERS:
                self._take(batch)
                batch.clear()
                size = 0
        self._size = size

    def _flush(self, end: bool = False) -> None:
        """Scan the lines that wait for others; ``end``: there are no others."""
        if self._batch:
            self._take(self._batch, end and not self._begun)
            self._batch.clear()
            self._size = 0

    def listen(self, note: Note) -> Ahead:
        """Let ``note`` hear of events before their batch is full."""
        self.ahead = Ahead(self._prefilter, note)
        return self.ahead

    def hear(self, waiting: Sequence[TextLine] | None = None) -> None:
        """Read the lines that wait for their batch ahead of it, where somebody listens."""
        if self.ahead is not None:
            batch = self._batch if waiting is None else waiting
            texts = [line.text for line in batch[:SNIFF_LINES]]
            sniff = None if self._begun else lambda scan: _sniff(texts, self._info, scan)
            self.ahead.take(self._lines, batch, sniff)

    def so_far(self) -> Iterator[Observations]:
        """Yield what was seen, in parts to be merged, and go on."""
        self._lines.settle()
        yield self._lines.result
        if self.ahead is not None:
            yield from self.ahead.observations()

    def _drop(self) -> None:
        if self.ahead is not None:
            self.ahead.drop()

    def sweep(self, block: Block, reader: LineReader) -> None:
        """Scan the lines of a block of whole lines that no one may miss, that open blocks, or that are news."""
        self._flush()
        self._drop()
        found = self._prefilter.sweep(block.data)
        lines = list(_lines_at(block, sorted([*found.ends, *self._news.of(found.firsts)]), reader))
        kinds = self._prefilter.kinds([line.text for _, line in lines])
        self._lines.begin()
        behind = self._go_on(block, 0, reader)
        for index, (end, line) in enumerate(lines):
            if end > behind:
                self._lines.take(line, kinds.get(index))
                if self._lines.open:
                    behind = self._go_on(block, end, reader)

    def _go_on(self, block: Block, start: int, reader: LineReader) -> int:
        """Scan the lines behind a position as long as a parser is inside of a block; returns where they end."""
        data = block.data
        if not self._lines.open:
            return start
        number = block.first_line + data.count(b"\n", 0, start)
        while self._lines.open and start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            for line in reader.pieces(number, block.offset + start, data[start : end - 1]):
                self._lines.take(line, self._prefilter.kinds([line.text]).get(0))
            start, number = end, number + 1
        return start

    def _take(self, batch: Sequence[TextLine], everything: bool = False) -> None:
        """Scan one batch of lines; ``everything``: the source has no other lines, so it may be a paste."""
        texts = [line.text for line in batch]
        self.hear(batch)
        self._drop()
        if not self._begun:
            self._begun = True
            _sniff(texts, self._info, self._lines)
        self._lines.begin(paste=everything)
        kinds = self._prefilter.kinds(texts)
        speakers = {*range(min(SPEAKER_LINES, len(batch))), *range(max(0, len(batch) - SPEAKER_LINES), len(batch))}
        records = [index for index, text in enumerate(texts) if text.startswith(RECORD)]
        following = iter(sorted({*kinds, *speakers, *records}))
        index, wanted = -1, next(following, None)
        while True:
            # A line inside of a block matters whatever it holds.
            index += 1
            if not self._lines.open:
                while wanted is not None and wanted < index:
                    wanted = next(following, None)
                if wanted is None:
                    break
                index = wanted
            elif index >= len(batch):
                break
            self._lines.take(batch[index], kinds.get(index), index in speakers)
        pasted = joined_candidates(texts, self._prefilter, self._lines.profile) if everything else ()
        for first, joined, signatures in pasted:
            self._lines.join(batch[first], joined, signatures)

    def finish(self) -> Observations:
        """Close the parsers and return what was seen."""
        self._flush(end=True)
        self._lines.finish()
        self._lines.result.add_source(self._info)
        return self._lines.result


def _sniff(lines: Sequence[str], info: SourceInfo, scan: LineScan) -> None:
    """Learn from the first lines what a source is."""
    first = list(lines[:SNIFF_LINES])
    scan.profile = WrapperProfile.sniff(first)
    # NCCL_DEBUG_FILE holds NCCL lines only, by nature.
    if info.layout != "nccl-debug-file" and looks_filtered(first):
        scan.result.notes.append(f"{info.path} looks filtered by grep")


def _lines_at(block: Block, positions: Iterable[int], reader: LineReader) -> Iterator[tuple[int, Line]]:
    """Yield the lines in which the positions lie, each with the position behind its end."""
    data, number, counted, behind = block.data, block.first_line, 0, 0
    for position in positions:
        if position <= behind:
            continue
        start = data.rfind(b"\n", 0, position - 1) + 1
        number += data.count(b"\n", counted, start)
        counted = start
        behind = data.find(b"\n", position - 1) + 1 or len(data)
        for line in reader.pieces(number, block.offset + start, data[start : behind - 1]):
            yield behind, line
