"""Scan sources with one set of rules: what the rules look for is compiled once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence

from nccl_triage.byte_search import Newlines
from nccl_triage.engine.schema import RuleSet
from nccl_triage.ingest.blocks import LineBlock
from nccl_triage.ingest.decode import LineReader
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.parsers import STATEFUL, unknown_errors
from nccl_triage.parsers.series import SeriesReader
from nccl_triage.parsers.wrappers import PrefixReader
from nccl_triage.scan import measurements, sampling
from nccl_triage.scan.learned_shapes import LearnedShapesByProfile
from nccl_triage.scan.lines import TextLine
from nccl_triage.scan.prefilter import make_prefilter
from nccl_triage.scan.sampling import Coverage
from nccl_triage.scan.source import SourceScan

#: Bytes at the beginning of a source like earlier ones that are read line by line, and at either end of one like many.
HEAD_BYTES, END_BYTES = 16 << 10, 8 << 10


class Scanner:
    """Scan sources with one set of rules; the prefilter is built once."""

    def __init__(self, rules: RuleSet) -> None:
        openers = {text for parser in STATEFUL for text in parser.OPENERS}
        self._series = SeriesReader(rules.series)
        self._prefixes = PrefixReader(rules.prefixes)
        self.forget()
        named = [(rule.id, rule.pattern) for rule in rules.signatures.values()]
        named += [(rule.id, rule.pattern) for rule in rules.series.formats.values()]
        named += [(rule.id, rule.pattern) for rule in rules.prefixes.rows.values() if rule.pattern is not None]
        self._users = [(name, pattern) for name, pattern in named if pattern.user]
        words = [text for text in unknown_errors.LITERALS if text not in openers]
        self._prefilter = make_prefilter(
            rules.signatures.values(), sorted(openers), measurements.literals(self._series), words
        )

    def forget(self) -> None:
        """Forget what sources taught."""
        self.learned = LearnedShapesByProfile(self._prefixes)

    def scan(self, lines: Iterable[TextLine], info: SourceInfo) -> Observations:
        """Scan the lines of one source; ``info`` is completed by whoever yields them."""
        run = SourceScan(self._prefilter, self._series, self._prefixes, info, self.learned, users=self._users)
        run.read(lines)
        return run.finish()

    def scan_blocks(
        self,
        reader: LineReader,
        info: SourceInfo,
        first: Sequence[str] | None = None,
        result: Observations | None = None,
        at_end: bool = True,
    ) -> Observations:
        """Scan one source; of a long one, blocks are only sampled (see ``sampling``).

        ``at_end`` tells that the reader comes to the end of the source, and not of a part of it. ``first`` are the
        first lines of the whole source if the reader has a later part of it. ``result`` is where events go
        (``observations.store.Foresight.begin``).
        """
        scan = self.begin(reader, info, result)
        if first is not None:
            scan.run.resume(first)
        for block in reader.raw_blocks():
            scan.take(block)
        return scan.finish(at_end)

    def begin(self, reader: LineReader, info: SourceInfo, result: Observations | None = None) -> BlockScan:
        """Return the scan of a source whose blocks come one by one."""
        return BlockScan(
            SourceScan(self._prefilter, self._series, self._prefixes, info, self.learned, result, users=self._users),
            reader,
        )


class BlockScan:
    """The scan of one source, block by block; the last ones wait until it is known that they are not the end."""

    def __init__(self, run: SourceScan, reader: LineReader) -> None:
        self.run = run
        self._reader = reader
        self._waiting: deque[LineBlock] = deque()
        self._done = 0
        #: Whether blocks were sampled, and whether the source is like many others and only skimmed.
        self._sampled = self._skims = False

    def take(self, block: LineBlock) -> None:
        """Take the next block (``LineReader.raw_blocks``)."""
        self._waiting.append(block)
        if len(self._waiting) > sampling.TAIL:
            self._next(sampling.coverage_of(self._done))

    def catch_up(self) -> None:
        """Read all that has come: it is the end for now."""
        if self._done == 0 and self._waiting:
            self._next(Coverage.WHOLE)
        while self._waiting:
            self._read()

    def finish(self, at_end: bool = True) -> Observations:
        """Read what is left and return what was seen; ``at_end``: nothing of the source comes behind."""
        # Whoever pasted a log pasted a short one: its lines are read together.
        while self._sampled and not self._skims and len(self._waiting) > 1:
            self._next(Coverage.WHOLE)
        if self._done == 0 and self._waiting:
            self._next(Coverage.WHOLE)
        if self._skims:
            self._skim_end()
        self.catch_up()
        self.run.read(self._reader.rest())
        self._reader.finish()
        return self.run.finish(at_end)

    def _next(self, coverage: Coverage) -> None:
        """Scan the next block; the first one is read line by line to learn what the source is."""
        block = self._waiting[0]
        if not self._reader.is_plain(block):
            self._read()
            return
        if self._done == 0:
            head, rest = _cut(block, HEAD_BYTES)
            alike = self.run.like_others(head)
            many = alike is not None and alike.number >= sampling.ALIKE
            if alike is not None and many and not alike.several:
                self._skim(block)
                return
            if alike is None or not rest.data:
                self._read()
                return
            self._waiting[0], block = _cut(block, END_BYTES) if many else (head, rest)
            self._read()
            if many:
                coverage = Coverage.NEWS
                if not self._waiting:
                    block, tail = _cut_tail(block)
                    self._waiting.append(tail)
        else:
            self._waiting.popleft()
            if self._skims:
                coverage = Coverage.NEWS
        self.run.read(self._reader.rest())
        self.run.sample(block, self._reader, coverage)
        self._sampled = True
        self._done += 1

    def _skim(self, block: LineBlock) -> None:
        """Begin a source like many others."""
        head, rest = _cut(block, END_BYTES)
        self.run.skim(head, self._reader)
        self._waiting.popleft()
        if rest.data:
            self._waiting.appendleft(rest)
        self._skims = self._sampled = True
        self._done += 1

    def _skim_end(self) -> None:
        """Scan the last blocks of such a source; a last line without an end, a block of its own, is left."""
        waiting = self._waiting
        while waiting and self._reader.is_plain(waiting[0]):
            block = waiting.popleft()
            if waiting and self._reader.is_plain(waiting[0]):
                self.run.sample(block, self._reader, Coverage.NEWS)
                continue
            block, tail = _cut_tail(block)
            if block.data:
                self.run.sample(block, self._reader, Coverage.NEWS)
            if not self.run.skim_end(tail, self._reader):
                waiting.appendleft(tail)
                return

    def _read(self) -> None:
        """Read the next block line by line."""
        block = self._reader.own_verdicts.blank(self._waiting.popleft())
        self.run.read(self._reader.lines(block))
        self._done += 1


_newlines = Newlines()


def _cut(block: LineBlock, most: int) -> tuple[LineBlock, LineBlock]:
    """Return the first lines of a block, and the others."""
    at = block.data.rfind(b"\n", 0, most) + 1 or block.data.find(b"\n") + 1
    lines = _newlines.count(block.data, 0, at)
    head = LineBlock(block.data[:at], block.first_line, block.offset)
    return head, LineBlock(block.data[at:], block.first_line + lines, block.offset + at)


def _cut_tail(block: LineBlock) -> tuple[LineBlock, LineBlock]:
    """Return a block without its last lines, and these; of a short one nothing, and all."""
    at = block.data.rfind(b"\n", 0, max(0, len(block.data) - END_BYTES)) + 1
    lines = _newlines.count(block.data, 0, at)
    tail = LineBlock(block.data[at:], block.first_line + lines, block.offset + at)
    return LineBlock(block.data[:at], block.first_line, block.offset), tail


_last = threading.local()


def scanner_for(rules: RuleSet) -> Scanner:
    """Return a scanner for another input, the same one while the rules of this thread's calls are the same.

    What earlier inputs taught must not decide which lines of this one are read in full.
    """
    if getattr(_last, "rules", None) is not rules:
        _last.scanner, _last.rules = Scanner(rules), rules
    made: Scanner = _last.scanner
    made.forget()
    return made
