"""Scan one source: its lines in batches, and blocks of lines that are only sampled.

Blocks that span lines (tracebacks, torchelastic reports) go to stateful parsers; text that was hard-wrapped by a
terminal is matched again joined. The result is bounded (``observations.store.Observations``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice

from nccl_triage.engine.pattern import Pattern
from nccl_triage.ingest.blocks import LineBlock
from nccl_triage.ingest.decode import LineReader, LogLine
from nccl_triage.ingest.progress import ProgressFilter
from nccl_triage.ingest.sniff import looks_filtered
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.parsers import counters, not_logs
from nccl_triage.parsers.series import SeriesReader
from nccl_triage.parsers.wrappers import PrefixReader
from nccl_triage.scan.learned_shapes import AlikeSources, LearnedShapesByProfile
from nccl_triage.scan.lines import SPEAKER_LINES, LineScan, TextLine
from nccl_triage.scan.literals import RECORD_STARTS
from nccl_triage.scan.openings import Openings
from nccl_triage.scan.prefilter import Prefilter
from nccl_triage.scan.preview import Note, Preview
from nccl_triage.scan.sampling import BlockSampler, Coverage
from nccl_triage.scan.terminal_wrap import read_joined, whole

#: Lines looked at to learn which ambiguous prefixes a source uses, and whether it is the output of grep.
SNIFF_LINES = 400
#: Of a line that is redrawn, the first and last states that are looked at for it.
STATES = 4
#: Last lines of a source like many others of which mostly some are of its counter.
FEW_LAST = 8
#: Last lines that are kept of a source for how it ends, and characters of each.
ENDING, WIDTH = 15, 200
#: Lines per prefilter call, and characters after which a batch is full anyway.
BATCH_LINES = 2000
BATCH_CHARACTERS = 1 << 18
#: Beginnings of lines at which another run of the job starts.
BEGINS = ("nohup: ", "+ torchrun ", "+ srun ", "+ mpirun ", "+ mpiexec ", "+ deepspeed ", "+ accelerate ", "+ python", "+ bash ",
          "Sender: LSF ", "$ ")  # fmt: skip


class SourceScan:
    """The state of scanning one source."""

    def __init__(
        self,
        prefilter: Prefilter,
        series: SeriesReader,
        prefixes: PrefixReader,
        info: SourceInfo,
        learned: LearnedShapesByProfile | None = None,
        result: Observations | None = None,
        users: Sequence[tuple[str, Pattern]] = (),
    ) -> None:
        """``result`` is where events go; ``users`` are the patterns that may be given up, by the name of their rule."""
        #: Reads the lines that wait for their batch, while the source still grows.
        self._preview: Preview | None = None
        self._prefilter, self._prefixes = prefilter, prefixes
        self._info = info
        self._users = users
        self._lines = LineScan(prefilter, series, prefixes, info, result, learned)
        self._sampler = BlockSampler(self._lines, prefilter)
        self._batch: list[TextLine] = []
        self._size = 0
        #: Whether its first lines were seen, and whether it is like many others (``skim``).
        self._begun = self._skims = False
        self._first: list[str] = []
        self._last: deque[TextLine] = deque(maxlen=counters.LINES)
        #: None behind the beginning of a source.
        self._openings: Openings | None = Openings()

    def read(self, lines: Iterable[TextLine]) -> None:
        """Scan lines, in batches that may go on with the next ones."""
        batch, size = self._batch, self._size
        for line in lines:
            batch.append(line)
            size += len(line.text)
            if len(batch) >= BATCH_LINES or size >= BATCH_CHARACTERS:
                self._read_batch(batch)
                batch.clear()
                size = 0
        self._size = size

    def resume(self, first: Sequence[str]) -> None:
        """Start behind the beginning of a source, whose first lines are known."""
        self._begun = True
        self._openings = None
        self._lines.profile = self._prefixes.sniff(first)

    def _flush(self, end: bool = False) -> None:
        """Scan the lines that wait for others; ``end``: there are no others."""
        if self._batch:
            self._read_batch(self._batch, end and not self._begun)
            self._batch.clear()
            self._size = 0

    def like_others(self, head: LineBlock) -> AlikeSources | None:
        """Return what earlier sources taught that began as this one does; None without any."""
        self._first = _texts(head)[:SNIFF_LINES]
        if self._begun or not self._lines.recall(self._first) or not self._lines.alike.number:
            return None
        self._sampler.interest = self._lines.alike.interest
        return self._lines.alike

    def skim(self, head: LineBlock, reader: LineReader) -> None:
        """Begin a source like many others by its first lines: only what these did not tell of it is read."""
        self._begun = self._skims = True
        self._lines.alike.number += 1
        self._lines.events.usual = self._lines.alike.faults
        _note_filtered(self._first, self._info, self._lines)
        self.sample(head, reader, Coverage.FIRST)

    def skim_end(self, tail: LineBlock, reader: LineReader) -> bool:
        """Scan the last lines of such a source; False if they tell of trouble and must be read."""
        if not self._sampler.calm(tail, reader):
            return False
        self.sample(tail, reader, Coverage.LAST)
        self._keep_last(tail, reader, counters.LINES if self._lines.alike.counts else FEW_LAST)
        return True

    def start_preview(self, note: Note) -> Preview:
        """Have ``note`` called with events before their batch is complete."""
        self._preview = Preview(self._prefilter, note)
        return self._preview

    def preview_waiting(self, waiting: Sequence[TextLine] | None = None) -> None:
        """Read the lines that wait for their batch before it is complete, where somebody wants to know."""
        if self._preview is not None:
            batch = self._batch if waiting is None else waiting
            texts = [line.text for line in batch[:SNIFF_LINES]]
            sniff = None if self._begun else lambda scan: _sniff(texts, self._info, scan)
            self._preview.take(self._lines, batch, sniff)

    def so_far(self) -> Iterator[Observations]:
        """Yield what was seen, in parts to be merged, and go on."""
        self._lines.settle()
        yield self._lines.result
        if self._preview is not None:
            yield from self._preview.observations()

    def _forget_preview(self) -> None:
        if self._preview is not None:
            self._preview.drop()

    def sample(self, block: LineBlock, reader: LineReader, coverage: Coverage) -> None:
        """Scan the lines of a block of whole lines that no one may miss, and those that may be news."""
        self._flush()
        self._forget_preview()
        if self._openings is not None:
            self._openings.search(block)
        if coverage is Coverage.WHOLE:
            self._keep_last(block, reader, counters.LINES)
        self._sampler.take(block, reader, coverage)

    def _keep_last(self, block: LineBlock, reader: LineReader, most: int) -> None:
        """Keep the last lines of a block at the end of a source, as those that are read line by line are kept."""
        rows = block.data.split(b"\n")[:-1]
        first = max(0, len(rows) - most)
        for number, raw in enumerate(rows[first:], block.first_line + first):
            self._last.extend(reader.pieces(number, block.offset, raw))

    def _note_speakers(
        self, batch: Sequence[TextLine], alarms: Iterable[int], kinds: Container[int], heard: set[int]
    ) -> None:
        """Keep who printed lines around faults of a new kind: those who only witness one do not say so."""
        around = {
            index
            for alarm in alarms
            for index in range(max(0, alarm - SPEAKER_LINES), min(len(batch), alarm + SPEAKER_LINES + 1))
        }
        for index in sorted(around - heard):
            line = batch[index]
            if index not in kinds and not self._lines.events.open and not line.text.startswith(RECORD_STARTS):
                self._lines.take(line.number, line.text, None, speaks=True)

    def _read_batch(self, batch: Sequence[TextLine], everything: bool = False) -> None:
        """Scan one batch of lines; ``everything``: the source has no other lines, so it may be a paste."""
        texts = [line.text for line in batch]
        if everything and (parts := whole(texts)) is not None:
            batch = [LogLine(batch[part[0]].number, 0, "".join(texts[part[0] : part[-1] + 1])) for part in parts]
            texts = [line.text for line in batch]
        self._last.extend(batch[-counters.LINES :])
        if self._openings is not None:
            self._openings.read([line.number for line in batch], texts)
        self.preview_waiting(batch)
        self._forget_preview()
        if not self._begun:
            self._begun = True
            _sniff(texts, self._info, self._lines)
        self._lines.begin(paste=everything)
        kinds = self._prefilter.kinds(texts)
        speakers = {*range(min(SPEAKER_LINES, len(batch))), *range(max(0, len(batch) - SPEAKER_LINES), len(batch))}
        wrapped = [index for index, text in enumerate(texts) if text.startswith(RECORD_STARTS)]
        following = iter(sorted({*kinds, *speakers, *wrapped}))
        index, wanted = -1, next(following, None)
        alarms: list[int] = []
        while True:
            # A line inside of an open block matters whatever it holds.
            index += 1
            if not self._lines.events.open:
                while wanted is not None and wanted < index:
                    wanted = next(following, None)
                if wanted is None:
                    break
                index = wanted
            elif index >= len(batch):
                break
            if batch[index].text.startswith(BEGINS):
                # Another launcher may put other prefixes before the lines of its processes.
                self._lines.profile = self._prefixes.sniff(texts[index + 1 : index + 1 + SNIFF_LINES])
            line, known = batch[index], self._lines.events.faults
            self._lines.take(line.number, line.text, kinds.get(index), index in speakers)
            if self._lines.events.faults > known:
                alarms.append(index)
        self._note_speakers(batch, alarms, kinds, speakers)
        if everything:
            self._info.no_log = not_logs.kind_of(texts)
            read_joined(
                texts, self._prefilter, self._lines.wrapped, lambda first, *line: self._lines.join(batch[first], *line)
            )

    def finish(self, at_end: bool = True) -> Observations:
        """Close the parsers and return what was seen; ``at_end``: nothing of the source comes behind."""
        self._flush(end=True)
        self._lines.finish()
        if at_end:
            self._add_counters()
            self._info.last_lines = () if self._skims else _ending(self._last)
            self._info.openings = self._openings.result() if self._openings is not None else ()
        self._lines.alike.learn(self._lines.result, self._skims)
        self._tell_given_up()
        self._lines.result.add_source(self._info)
        return self._lines.result

    def _add_counters(self) -> None:
        """Keep the counter that advanced last; in a source like many others a few lines tell which."""
        alike, lines = self._lines.alike, list(self._last)
        if (
            self._skims
            and len(lines) > FEW_LAST
            and (self._counts_in(lines[-FEW_LAST:], certain=True) or not alike.counts)
        ):
            return
        alike.counts = self._counts_in(lines) or alike.counts

    def _counts_in(self, lines: Sequence[TextLine], certain: bool = False) -> bool:
        numbers, texts = [line.number for line in lines], [line.text for line in lines]
        return self._lines.events.add_counters(numbers, texts, certain)

    def _tell_given_up(self) -> None:
        for rule, pattern in self._users:
            problem = f"the pattern of rule {rule} took too long and was skipped"
            if pattern.stopped and problem not in self._info.problems:
                self._info.problems.append(problem)


def _ending(last: Sequence[TextLine]) -> tuple[str, ...]:
    """Return the last lines that are not blank."""
    texts = (line.text.rstrip() for line in reversed(last))
    return tuple(text[:WIDTH] for text in islice(filter(None, texts), ENDING))[::-1]


def _texts(block: LineBlock) -> list[str]:
    """Return the lines of a block that one looks at to learn what the source is."""
    if b"\r" not in block.data:
        return block.data.decode("utf-8", "replace").split("\n")[:-1]
    redrawn = ProgressFilter(lambda raw: raw.decode("utf-8", "replace"))
    texts = []
    for number, raw in enumerate(block.data.split(b"\n")[:-1], 1):
        states = raw.split(b"\r")
        some = raw if len(states) <= 2 * STATES else b"\r".join((*states[:STATES], *states[-STATES:]))
        texts += [text for _, _, text in (*redrawn.pieces(number, 0, some), *redrawn.flush())]
    return texts


def _sniff(lines: Sequence[str], info: SourceInfo, scan: LineScan) -> None:
    """Learn from the first lines what a source is."""
    first = list(lines[:SNIFF_LINES])
    scan.sniff(first)
    _note_filtered(first, info, scan)


def _note_filtered(first: list[str], info: SourceInfo, scan: LineScan) -> None:
    # NCCL_DEBUG_FILE holds NCCL lines only, by nature.
    if info.layout != "nccl-debug-file" and looks_filtered(first):
        scan.result.notes.append(f"{info.path} looks filtered by grep")
