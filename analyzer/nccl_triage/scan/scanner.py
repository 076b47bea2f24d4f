"""Scan sources with one set of rules: what the rules look for is compiled once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from nccl_triage.engine.schema import RuleSet
from nccl_triage.events import Observations, SourceInfo
from nccl_triage.ingest.blocks import Block
from nccl_triage.ingest.decode import LineReader
from nccl_triage.parsers import STATEFUL, salient
from nccl_triage.parsers.series import SeriesReader
from nccl_triage.scan import measures, sweeping
from nccl_triage.scan.lines import TextLine
from nccl_triage.scan.prefilter import make_prefilter
from nccl_triage.scan.source import SourceScan
from nccl_triage.scan.sweeping import Share


class Scanner:
    """Scan sources with one set of rules; the prefilter is built once."""

    def __init__(self, rules: RuleSet) -> None:
        further = {text for parser in STATEFUL for text in parser.OPENERS} | set(salient.LITERALS)
        self._series = SeriesReader(rules.series)
        self._prefilter = make_prefilter(rules.signatures.values(), sorted(further), measures.literals(self._series))

    def scan(self, lines: Iterable[TextLine], info: SourceInfo) -> Observations:
        """Scan the lines of one source; ``info`` is completed by whoever yields them."""
        run = SourceScan(self._prefilter, self._series, info)
        run.read(lines)
        return run.finish()

    def scan_blocks(self, reader: LineReader, info: SourceInfo) -> Observations:
        """Scan one source; of a long one, blocks are only looked through (see ``sweeping``)."""
        run = SourceScan(self._prefilter, self._series, info)
        waiting: deque[Block] = deque()
        count = 0
        for block in reader.iter_blocks():
            waiting.append(block)
            if len(waiting) > sweeping.TAIL:
                self._next(run, reader, waiting.popleft(), count, sweeping.share(count))
                count += 1
        long = count > 0
        while waiting:
            block = waiting.popleft()
            # Whoever pasted a log pasted a short one: its lines are read together.
            if long and waiting:
                self._next(run, reader, block, count, Share.WHOLE)
            else:
                run.read(reader.lines(block))
            count += 1
        run.read(reader.rest())
        reader.finish()
        return run.finish()

    @staticmethod
    def _next(run: SourceScan, reader: LineReader, block: Block, ordinal: int, share: Share) -> None:
        """Scan a block of a long source; the first one is read line by line to learn what the source is."""
        if ordinal == 0 or not reader.is_plain(block):
            run.read(reader.lines(block))
        else:
            run.read(reader.rest())
            run.sweep(block, reader, share)


_last = threading.local()


def scanner_for(rules: RuleSet) -> Scanner:
    """Return a scanner, the same one while the rules of this thread's calls are the same."""
    if getattr(_last, "rules", None) is not rules:
        _last.scanner, _last.rules = Scanner(rules), rules
    made: Scanner = _last.scanner
    return made
