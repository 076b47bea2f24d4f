"""Scan one source: its lines in batches, and blocks of lines that are only looked through.

Blocks that span lines (tracebacks, torchelastic reports) go to stateful parsers; text that was hard-wrapped by a
terminal is matched again joined. The result is bounded (``observations.store.Observations``).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from nccl_triage.byte_search import Newlines
from nccl_triage.engine.pattern import Pattern
from nccl_triage.ingest.blocks import LineBlock
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.sniff import looks_filtered
from nccl_triage.observations.store import Observations, Room, SourceInfo
from nccl_triage.parsers import counters
from nccl_triage.parsers.series import SeriesReader
from nccl_triage.parsers.wrappers import WrapperProfile
from nccl_triage.scan import sampling
from nccl_triage.scan.learned_shapes import LearnedShapesBySource
from nccl_triage.scan.lines import LineScan, TextLine
from nccl_triage.scan.literals import RECORD_STARTS, escape_ends, may_hide_literals
from nccl_triage.scan.prefilter import Prefilter
from nccl_triage.scan.preview import Ahead, Note
from nccl_triage.scan.sampling import Coverage
from nccl_triage.scan.terminal_wrap import joined_candidates

#: Lines looked at to learn which ambiguous prefixes a source uses, and whether it is the output of grep.
SNIFF_LINES = 400
#: Lines per prefilter call, and characters after which a batch is full anyway.
BATCH_LINES = 2000
BATCH_CHARACTERS = 1 << 18
#: Lines at either end of a batch that are looked at only to learn which ranks speak at all.
SPEAKER_LINES = 40
#: How a line begins with which another run of the job begins.
BEGINS = ("nohup: ", "+ torchrun ", "+ srun ", "+ mpirun ", "+ mpiexec ", "+ deepspeed ", "+ accelerate ", "+ python", "+ bash ",
          "Sender: LSF ", "$ ")  # fmt: skip
#: Stands for the literals of which no line may be missed.
_URGENT = -1


class SourceScan:
    """The state of scanning one source."""

    def __init__(
        self,
        prefilter: Prefilter,
        series: SeriesReader,
        info: SourceInfo,
        learned: LearnedShapesBySource | None = None,
        rooms: Mapping[str, Room] | None = None,
        users: Sequence[tuple[str, Pattern]] = (),
    ) -> None:
        """``users`` are the patterns that may be given up, by the name of their rule."""
        #: Reads what waits while the source still grows, if somebody wants to know.
        self.ahead: Ahead | None = None
        self._prefilter = prefilter
        self._info = info
        self._users = users
        self._lines = LineScan(prefilter, series, info, Observations(rooms=rooms or {}), learned)
        self._interest = sampling.Interest()
        self._newlines = Newlines()
        self._aftermath = 0
        self._batch: list[TextLine] = []
        self._size = 0
        self._begun = False
        self._last: deque[TextLine] = deque(maxlen=counters.LINES)

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

    def resume(self, first: Sequence[str]) -> None:
        """Begin behind the beginning of a source, whose first lines are known."""
        self._begun = True
        self._lines.profile = WrapperProfile.sniff(first)

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

    def sweep(self, block: LineBlock, reader: LineReader, share: Coverage) -> None:
        """Scan the lines of a block of whole lines that no one may miss, and those that may be news."""
        self._flush()
        self._drop()
        self._lines.begin()
        known = self._lines.events.faults
        self._lines.events.brief = share is not Coverage.WHOLE
        if share is Coverage.WHOLE:
            self._keep_last(block, reader)
        self._search(block, reader, share)
        self._lines.events.brief = False
        self._aftermath = sampling.AFTERMATH if self._lines.events.faults > known else max(0, self._aftermath - 1)

    def _keep_last(self, block: LineBlock, reader: LineReader) -> None:
        """Keep the last lines of a block at the end of a source, as those that are read line by line are kept."""
        rows = block.data.split(b"\n")[:-1]
        first = max(0, len(rows) - counters.LINES)
        for number, raw in enumerate(rows[first:], block.first_line + first):
            self._last.extend(reader.pieces(number, block.offset, raw))

    def _search(self, block: LineBlock, reader: LineReader, share: Coverage) -> None:
        """Search a block for literals, and scan the lines of those that count."""
        whole = share is Coverage.WHOLE or self._aftermath > 0
        awake = whole or share is Coverage.NUMBERS or self._interest.awake()
        look = self._prefilter.sweeper(quick=not awake)
        swept = look(block.data)
        if swept.verdicts or reader.own_verdicts.open:
            block = reader.own_verdicts.blank(block)
            swept = look(block.data)
        if share is not Coverage.NEWS:
            self._who_speaks(block, reader)
        owners = dict.fromkeys(swept.ends, _URGENT)
        if swept.records:
            owners.update(dict.fromkeys(escape_ends(block.data), _URGENT))
        read = self._choose(block.data, swept.firsts, share, whole, awake, owners)
        self._interest.learn(read, self._walk(block, reader, owners), awake)

    def _choose(
        self, data: bytes, firsts: Mapping[int, int], share: Coverage, whole: bool, awake: bool, owners: dict[int, int]
    ) -> dict[int, int]:
        """Add to ``owners`` where literals of lines end that may be missed; returns how many lines each one has there."""
        followed = list(firsts) if whole else self._interest.of(firsts)
        if share is Coverage.NUMBERS and not whole:
            followed = sorted({*followed, *self._prefilter.of_numbers(firsts)})
        read = dict.fromkeys(followed, 0)
        for literal, found in zip(followed, self._prefilter.ends(data, followed), strict=True):
            read[literal] = len(found)
            for end in found:
                owners.setdefault(end, literal)
        if awake and not whole:
            glances = self._interest.glances(firsts)
            read.update(dict.fromkeys(glances, 1))
            for literal in glances:
                owners.setdefault(firsts[literal], literal)
        return read

    def _who_speaks(self, block: LineBlock, reader: LineReader) -> None:
        """Learn who speaks at the beginning of a block."""
        if self._lines.events.open:
            return
        raws = block.data.split(b"\n", SPEAKER_LINES)[:SPEAKER_LINES]
        texts = [reader.decode(raw) for raw in raws]
        kinds = self._prefilter.kinds(texts)
        for index, text in enumerate(texts):
            if index not in kinds and not may_hide_literals(raws[index]):
                self._lines.take(block.first_line + index, text, None, speaks=True)

    def _who_spoke(
        self, batch: Sequence[TextLine], alarms: Iterable[int], kinds: Container[int], heard: set[int]
    ) -> None:
        """Learn who spoke around the lines at which faults of a new kind stand: who was there says nothing of itself."""
        around = {
            index
            for alarm in alarms
            for index in range(max(0, alarm - SPEAKER_LINES), min(len(batch), alarm + SPEAKER_LINES + 1))
        }
        for index in sorted(around - heard):
            line = batch[index]
            if index not in kinds and not self._lines.events.open and not line.text.startswith(RECORD_STARTS):
                self._lines.take(line.number, line.text, None, speaks=True)

    def _walk(self, block: LineBlock, reader: LineReader, owners: Mapping[int, int]) -> dict[int, int]:
        """Scan the lines in which literals end; returns how many lines told something new, by their literals."""
        data, lines = block.data, self._lines
        redrawn = b"\r" in data
        gains: dict[int, int] = defaultdict(int)
        number, counted = block.first_line, 0
        behind = self._go_on(block, 0, reader)
        for end in sorted(owners):
            if end <= behind:
                continue
            start = data.rfind(b"\n", behind, end - 1) + 1 or behind
            stop = data.find(b"\n", end - 1)
            raw = data[start:stop]
            number += self._newlines.count(data, counted, start)
            counted, behind = start, stop + 1
            if redrawn:
                raw = raw.rstrip(b"\r")
            if lines.count(number, raw) is not None:
                continue
            before = lines.events.news
            if redrawn and b"\r" in raw:
                self._pieces(number, block.offset + start, raw, reader)
            else:
                lines.read_uncounted(number, raw, reader.decode(raw))
            if lines.events.news > before:
                gains[owners[end]] += 1
            if lines.events.open:
                behind = self._go_on(block, behind, reader)
        return gains

    def _go_on(self, block: LineBlock, start: int, reader: LineReader) -> int:
        """Scan the lines behind a position as long as a parser is inside of a block; returns where they end."""
        data = block.data
        if not self._lines.events.open:
            return start
        number = block.first_line + data.count(b"\n", 0, start)
        while self._lines.events.open and start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            self._pieces(number, block.offset + start, data[start : end - 1], reader)
            start, number = end, number + 1
        return start

    def _pieces(self, number: int, offset: int, raw: bytes, reader: LineReader) -> None:
        """Scan what is worth reading of one line, which may hold carriage returns."""
        for line in reader.pieces(number, offset, raw):
            piece = line.text.encode("utf-8", "surrogatepass")
            if self._lines.count(number, piece) is None:
                self._lines.read_uncounted(number, piece, line.text)

    def _take(self, batch: Sequence[TextLine], everything: bool = False) -> None:
        """Scan one batch of lines; ``everything``: the source has no other lines, so it may be a paste."""
        self._last.extend(batch[-counters.LINES :])
        texts = [line.text for line in batch]
        self.hear(batch)
        self._drop()
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
            # A line inside of a block matters whatever it holds.
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
                self._lines.profile = WrapperProfile.sniff(texts[index + 1 : index + 1 + SNIFF_LINES])
            line, known = batch[index], self._lines.events.faults
            self._lines.take(line.number, line.text, kinds.get(index), index in speakers)
            if self._lines.events.faults > known:
                alarms.append(index)
        self._who_spoke(batch, alarms, kinds, speakers)
        pasted = joined_candidates(texts, self._prefilter, self._lines.profile) if everything else ()
        for first, joined, signatures in pasted:
            self._lines.join(batch[first], joined, signatures)

    def finish(self, at_end: bool = True) -> Observations:
        """Close the parsers and return what was seen; ``at_end``: nothing of the source comes behind."""
        self._flush(end=True)
        self._lines.finish()
        if at_end:
            self._lines.events.add_counters([line.number for line in self._last], [line.text for line in self._last])
        self._tell_given_up()
        self._lines.result.add_source(self._info)
        return self._lines.result

    def _tell_given_up(self) -> None:
        for rule, pattern in self._users:
            problem = f"the pattern of rule {rule} took too long and was given up"
            if pattern.stopped and problem not in self._info.problems:
                self._info.problems.append(problem)


def _sniff(lines: Sequence[str], info: SourceInfo, scan: LineScan) -> None:
    """Learn from the first lines what a source is."""
    first = list(lines[:SNIFF_LINES])
    scan.profile = WrapperProfile.sniff(first)
    # NCCL_DEBUG_FILE holds NCCL lines only, by nature.
    if info.layout != "nccl-debug-file" and looks_filtered(first):
        scan.result.notes.append(f"{info.path} looks filtered by grep")
