"""Which parts of a long log are read line by line, and which only searched for what must not be missed.

Faults and consequences are found wherever they stand. Context, progress and numbers are what a long log says a million
times. Their literals are followed to every line as long as that tells something new: another process, another kind of
line. After that one line now and then is enough, until one of those is news. Behind a block in which none of them told
anything new, some blocks are searched only for what is found quickly, which leaves out the lines that tell of steps; if
there is much news there after all, the next block is searched for everything again. The beginning and the end of a source
are read whole, and so are the blocks behind a fault of a new kind. Numbers are read in some blocks of the middle, more
and more seldom.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Mapping
from enum import Enum

from nccl_triage.byte_search import Newlines
from nccl_triage.ingest.blocks import LineBlock
from nccl_triage.ingest.decode import LineReader
from nccl_triage.scan.interest import PATIENCE, Interest
from nccl_triage.scan.lines import SPEAKER_LINES, LineScan
from nccl_triage.scan.literals import Sweep, escape_ends, may_hide_literals
from nccl_triage.scan.prefilter import Prefilter

#: Blocks at either end of a source that are read whole.
HEAD, TAIL = 2, 2
#: Sources like one another, after which only the ends of the next one are read whole.
ALIKE = 4
#: Blocks behind a new kind of fault in which everything is followed.
AFTERMATH = 2
#: Stands for the literals of which no line may be missed.
_URGENT = -1


class Coverage(Enum):
    """Which lines of a block are scanned, beside those that tell of faults and consequences."""

    #: Those that may be news.
    NEWS = "news"
    #: Also all with numbers for curves.
    NUMBERS = "numbers"
    #: All that hold a literal.
    WHOLE = "whole"
    #: Of a source like many others, whose lines they taught: the first line of each literal, or the last one.
    FIRST = "first"
    LAST = "last"


def coverage_of(ordinal: int) -> Coverage:
    """Return how much of a block is scanned; ``ordinal`` counts from 0 at the beginning of the source."""
    if ordinal < HEAD:
        return Coverage.WHOLE
    return Coverage.NUMBERS if ordinal & (ordinal - 1) == 0 else Coverage.NEWS


class BlockSampler:
    """Scans blocks of whole lines of one source: the lines that must not be missed, and those that may be news."""

    def __init__(self, lines: LineScan, prefilter: Prefilter) -> None:
        self._lines = lines
        self._events = lines.events
        self._prefilter = prefilter
        self.interest = Interest()
        self._newlines = Newlines()
        #: Blocks in which everything is still followed, since a fault before them was news.
        self._aftermath = 0
        #: The literals that the source was seen to hold, if it is like many others.
        self._met: set[int] | None = None
        #: Lines in it that were read in vain, by their literal, since one was not.
        self._vain: Counter[int] | None = None
        #: What was found in the next block, if that is known (``calm``).
        self._swept: Sweep | None = None

    def calm(self, block: LineBlock, reader: LineReader) -> bool:
        """Tell whether nothing in or before a block, the next one, speaks of trouble."""
        if self._events.open or self._events.faults or reader.own_verdicts.open:
            return False
        data = block.data
        swept = self._prefilter.sweeper()(data)
        starts = {data.rfind(b"\n", 0, end) + 1 for end in swept.ends}
        if swept.verdicts or not all(self._lines.harmless(data[at : data.find(b"\n", at)]) for at in starts):
            return False
        self._swept = swept
        return True

    def take(self, block: LineBlock, reader: LineReader, coverage: Coverage) -> None:
        """Scan the lines of a block that no one may miss, and those that may be news."""
        events = self._events
        self._lines.begin()
        known = events.surprises
        events.brief = coverage is not Coverage.WHOLE
        self._search(block, reader, coverage)
        events.brief = False
        self._aftermath = AFTERMATH if events.surprises > known else max(0, self._aftermath - 1)

    def _search(self, block: LineBlock, reader: LineReader, coverage: Coverage) -> None:
        """Search a block for literals, and scan the lines of those that count."""
        if coverage is Coverage.FIRST:
            self._met, self._vain = set(), Counter()
        whole = coverage is Coverage.WHOLE or self._aftermath > 0
        awake = whole or coverage is not Coverage.NEWS or self.interest.awake()
        look = self._prefilter.sweeper(quick=not awake)
        swept, self._swept = self._swept or look(block.data), None
        if swept.verdicts or reader.own_verdicts.open:
            block = reader.own_verdicts.blank(block)
            swept = look(block.data)
        if coverage in (Coverage.NUMBERS, Coverage.WHOLE):
            self._note_speakers(block, reader)
        owners = dict.fromkeys(swept.ends, _URGENT)
        if swept.records:
            owners.update(dict.fromkeys(escape_ends(block.data), _URGENT))
        read = self._choose(block.data, swept.firsts, coverage, whole, awake, owners)
        if coverage is Coverage.FIRST or coverage is Coverage.LAST:
            self._note_speaker(block, reader, coverage is Coverage.LAST, owners)
            awake = False  # these few lines do not tell whether blocks may be left out
        expected = self._expected(swept.firsts)
        self.interest.learn(read, self._read_at(block, reader, owners, expected), awake)

    def _choose(
        self,
        data: bytes,
        firsts: Mapping[int, int],
        coverage: Coverage,
        whole: bool,
        awake: bool,
        owners: dict[int, int],
    ) -> dict[int, int]:
        """Add to ``owners`` the ends of chosen literals of context, progress and numbers; returns how many lines each has."""
        followed = list(firsts) if whole else self.interest.of(firsts)
        if coverage is Coverage.NUMBERS and not whole:
            followed = sorted({*followed, *self._prefilter.of_numbers(firsts)})
        read = dict.fromkeys(followed, 0)
        for literal, found in zip(followed, self._prefilter.ends(data, followed), strict=True):
            read[literal] = len(found)
            for end in found:
                owners.setdefault(end, literal)
        if coverage is Coverage.FIRST:
            for literal in self.interest.speaking(firsts):
                owners.setdefault(firsts[literal], literal)
        elif coverage is Coverage.LAST:
            told = self.interest.speaking(self._prefilter.of_progress(firsts))
            for literal, end in zip(told, self._prefilter.lasts(data, told), strict=True):
                read.setdefault(literal, 1)
                owners.setdefault(end, literal)
        elif awake and not whole:
            glances = self.interest.glances(firsts)
            read.update(dict.fromkeys(glances, 1))
            for literal in glances:
                owners.setdefault(firsts[literal], literal)
        return read

    def _expected(self, firsts: Mapping[int, int]) -> set[int]:
        """Return where those literals end that a source like many others has not held before: of it they are news."""
        if self._met is None:
            return set()
        found = {end for literal, end in firsts.items() if literal not in self._met}
        self._met.update(firsts)
        return found

    def _note_speaker(self, block: LineBlock, reader: LineReader, last: bool, owners: Mapping[int, int]) -> None:
        """Keep who prints the first, or the last, line of a block if it holds no literal."""
        data = block.data
        start = data.rfind(b"\n", 0, len(data) - 1) + 1 if last else 0
        stop = data.find(b"\n", start)
        if self._events.open or any(start < end <= stop for end in owners):
            return
        raw = _last_state(data[start:stop])
        if not may_hide_literals(raw):
            number = block.first_line + self._newlines.count(data, 0, start)
            self._lines.take(number, reader.decode(raw), None, speaks=True)

    def _note_speakers(self, block: LineBlock, reader: LineReader) -> None:
        """Keep who prints the first lines of a block."""
        if self._events.open:
            return
        raws = [_last_state(raw) for raw in block.data.split(b"\n", SPEAKER_LINES)[:SPEAKER_LINES]]
        texts = [reader.decode(raw) for raw in raws]
        kinds = self._prefilter.kinds(texts)
        for index, text in enumerate(texts):
            if index not in kinds and not may_hide_literals(raws[index]):
                self._lines.take(block.first_line + index, text, None, speaks=True)

    def _read_at(
        self, block: LineBlock, reader: LineReader, owners: Mapping[int, int], expected: Container[int]
    ) -> dict[int, int]:
        """Scan the lines in which literals end; returns how many told something new by their literals, but for ``expected``."""
        data, lines, events = block.data, self._lines, self._events
        redrawn, vain = b"\r" in data, self._vain
        gains: dict[int, int] = defaultdict(int)
        number, counted = block.first_line, 0
        behind = self._read_open_block(block, 0, reader)
        for end in sorted(owners):
            if end <= behind:
                continue
            start = data.rfind(b"\n", behind, end - 1) + 1 or behind
            stop = data.find(b"\n", end - 1)
            raw = data[start:stop]
            number += self._newlines.count(data, counted, start)
            counted, behind = start, stop + 1
            literal = owners[end]
            if vain is not None and vain[literal] > PATIENCE:
                continue
            if redrawn:
                raw = raw.rstrip(b"\r")
            if vain is not None and literal != _URGENT:
                vain[literal] += 1
            if lines.count(number, raw) is not None:
                continue
            before = events.news
            if redrawn and b"\r" in raw:
                self._read_pieces(number, block.offset + start, raw, reader)
            else:
                self.interest.hear(literal, lines.read_uncounted(number, raw, reader.decode(raw)))
            if events.news > before and end not in expected:
                gains[literal] += 1
                if vain is not None:
                    vain[literal] = 0
            if events.open:
                behind = self._read_open_block(block, behind, reader)
        return gains

    def _read_open_block(self, block: LineBlock, start: int, reader: LineReader) -> int:
        """Scan the lines behind a position while a block that spans lines is open; returns where they end."""
        data = block.data
        if not self._events.open:
            return start
        number = block.first_line + data.count(b"\n", 0, start)
        while self._events.open and start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            self._read_pieces(number, block.offset + start, data[start : end - 1], reader)
            start, number = end, number + 1
        return start

    def _read_pieces(self, number: int, offset: int, raw: bytes, reader: LineReader) -> None:
        """Scan what is worth reading of one line, which may hold carriage returns."""
        for line in reader.pieces(number, offset, raw):
            piece = line.text.encode("utf-8", "surrogatepass")
            if self._lines.count(number, piece) is None:
                self._lines.read_uncounted(number, piece, line.text)


def _last_state(raw: bytes) -> bytes:
    """Return a line, or its last state where it is redrawn."""
    return raw.rstrip(b"\r").rpartition(b"\r")[2] if b"\r" in raw else raw
