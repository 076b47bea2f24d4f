"""Bytes of a log as numbered lines of text, without the verdicts that nccl-triage itself printed into it.

``LineReader`` reads everything. A scanner that wants only some lines takes the blocks as they are (``raw_blocks``), has
verdicts blanked in them (``own_verdicts``), reads some of them whole (``lines``), looks for candidates in the bytes of
others and decodes those (``decode``).

"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import BinaryIO, NamedTuple

from nccl_triage.ingest.blocks import BLOCK, MAX_LINE, BlockReader, LineBlock
from nccl_triage.ingest.encodings import decode_utf8
from nccl_triage.ingest.progress import ProgressFilter
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import SourceInfo

#: Stands in every verdict.
OWN_NAME = b"nccl-triage:"
#: The name of the headline; colours may stand before it.
_HEADLINE = lazily(rb"(?:\x1b\[[\d;]{0,20}m){0,8}" + OWN_NAME)
#: What every other line of a verdict begins with, if it is not empty.
_VERDICT_INDENT = b"  "
#: Different lines of a block that must stand twice.
_PAIRS = 8


class OwnVerdicts:
    """Blanks our own verdicts in the blocks of one source, block by block in their order.

    A job that ``nccl-triage run`` wraps, or whose batch script triages it, ends its log with a verdict. It quotes the
    lines that it rests on and names what else they could mean, and would be evidence for itself.
    """

    def __init__(self) -> None:
        self._start: tuple[int, bytes] | None = None

    @property
    def open(self) -> bool:
        """Whether the next block may go on with a verdict; another one has nothing to blank without ``OWN_NAME``."""
        return self._start is not None

    def blank(self, block: LineBlock) -> LineBlock:
        """Return the next block with spaces in place of verdicts; what a launcher put before their lines stays."""
        if self._start is None and OWN_NAME not in block.data:
            return block
        data, self._start = _without_verdicts(block.data, self._start)
        return block._replace(data=data)


def _without_verdicts(data: bytes, start: tuple[int, bytes] | None) -> tuple[bytes, tuple[int, bytes] | None]:
    """Return a block without verdicts, and where the lines of one that goes on begin, behind which prefix."""
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        headline = _HEADLINE.search(line)
        if headline:
            start = (headline.start(), line[: headline.start()])
        elif start is not None and not _goes_on(line, *start) and (line or number < len(lines) - 1):
            start = None
        if start is not None and line:
            column = start[0]
            lines[number] = line[:column] + b" " * (len(line) - column)
    return b"\n".join(lines), start


def _goes_on(line: bytes, column: int, prefix: bytes) -> bool:
    """Tell whether a line belongs to the verdict whose headline stood at a column behind a prefix.

    Times differ from line to line, so the prefixes are compared by their ends and lengths only. Blocks are parted by
    lines that hold nothing, or nothing but the prefix, perhaps without the space at its end.
    """
    if not line.strip():
        return True
    if not line[column:].strip() and column - len(line) <= 1:
        return line[:1] == prefix[:1]
    if not line.startswith(_VERDICT_INDENT, column):
        return False
    return line[:1] == prefix[:1] and line[column - 1 : column] == prefix[-1:] if column else True


def _single(lines: Sequence[str]) -> Sequence[int] | None:
    """Return which lines to read where each stands twice, as two handlers of one logger print them; else None."""
    for first in (0, 1):
        if lines[first : first + 1] == lines[first + 1 : first + 2]:
            ones, others = lines[first::2], lines[first + 1 :: 2]
            # One line that comes again and again is no log that came twice.
            if ones[: len(others)] == others and len(set(others)) >= _PAIRS:
                return [*range(first), *range(first, len(lines), 2)]
    return None


class LogLine(NamedTuple):
    """A line without its end.

    ``number`` is the physical line from 1; the parts of a line that holds carriage returns share it.
    ``offset`` is where the text begins in the unpacked stream (see ``LineBlock.offset``).
    """

    number: int
    offset: int
    text: str


class LineReader:
    """Iterate the lines of one source once and fill what ``info`` says about sizes and problems.

    UTF-8 (bad bytes are replaced and counted), UTF-16 and GB18030 are recognised. Lines longer than
    ``max_line`` bytes lose their middle. Raises nothing for what the data hold; an ``OSError`` while reading
    becomes a problem.
    """

    def __init__(
        self,
        stream: BinaryIO,
        info: SourceInfo,
        max_line: int = MAX_LINE,
        block: int = BLOCK,
        first_line: int = 1,
    ) -> None:
        self._reader = BlockReader(stream, info, max_line, block, first_line)
        self._progress = ProgressFilter(self.decode)
        self.own_verdicts = OwnVerdicts()
        self._continues = False

    def iter_blocks(self) -> Iterator[LineBlock]:
        """Yield the blocks, in order; ``lines`` reads one. Bad bytes count only in what is decoded."""
        return map(self.own_verdicts.blank, self._reader)

    def raw_blocks(self) -> Iterator[LineBlock]:
        """Yield the blocks as they are; the caller gives each to ``own_verdicts``, or knows that it holds none."""
        return iter(self._reader)

    def decode(self, data: bytes) -> str:
        """Return the text of bytes from a block; bad bytes are replaced and counted."""
        text, bad = decode_utf8(data)
        self._reader.problems.bad_bytes += bad
        return text

    def __iter__(self) -> Iterator[LogLine]:
        """Yield the lines in order."""
        for block in self.iter_blocks():
            yield from self.lines(block)
        yield from self.rest()

    def lines(self, block: LineBlock) -> Iterator[LogLine]:
        """Yield the lines of the next block, after what the one before it left over."""
        continues, self._continues = self._continues, not block.data.endswith(b"\n")
        if continues or b"\r" in block.data:
            yield from self._redrawn(block, continues)
        else:
            yield from self.rest()
            yield from self._plain(block)

    def is_plain(self, block: LineBlock) -> bool:
        """Tell whether the next block is whole lines, so that it need not be given to ``lines``.

        What earlier blocks left over (``rest``) comes before it.
        """
        return not self._continues and block.data.endswith(b"\n")

    def pieces(self, number: int, offset: int, body: bytes) -> Iterator[LogLine]:
        """Yield what is worth reading of one whole line, which may hold carriage returns."""
        body = body.rstrip(b"\r")
        if b"\r" in body:
            yield from starmap(LogLine, self._progress.pieces(number, offset, body))
            yield from self.rest()
        else:
            yield LogLine(number, offset, self.decode(body))

    def rest(self) -> Iterator[LogLine]:
        """Yield what is left over of lines that are redrawn, where they end."""
        return starmap(LogLine, self._progress.flush())

    def held(self) -> list[LogLine]:
        """Return the current states of lines that are being redrawn."""
        return list(starmap(LogLine, self._progress.held()))

    def finish(self) -> None:
        """Complete ``info`` after the last lines were read."""
        self._reader.tell()

    def _plain(self, block: LineBlock) -> Iterator[LogLine]:
        """Yield the lines of a block without carriage returns."""
        data, number, offset = block
        text = self.decode(data)
        lines = text.split("\n")
        if not lines[-1]:
            del lines[-1]
        # A third faster than LogLine(..), whose __new__ is written in Python.
        make = tuple.__new__
        if (single := _single(lines)) is not None:
            yield from (make(LogLine, (number + count, offset, lines[count])) for count in single)
            return
        if len(text) == len(data):
            for count, line in enumerate(lines):
                yield make(LogLine, (number + count, offset, line))
                offset += len(line) + 1
            return
        for count, (line, raw) in enumerate(zip(lines, data.split(b"\n"), strict=False)):
            yield make(LogLine, (number + count, offset, line))
            offset += len(raw) + 1

    def _redrawn(self, block: LineBlock, continues: bool) -> Iterator[LogLine]:
        """Yield the lines of a block in which some hold carriage returns, or that begins inside of one."""
        data, number, offset = block
        raws = data.split(b"\n")
        last = len(raws) - 1
        for index, raw in enumerate(raws):
            if index == last and not raw:
                break
            if index < last and not (index == 0 and continues):
                yield from self.rest()
                yield from self.pieces(number, offset, raw)
            else:
                yield from starmap(LogLine, self._progress.pieces(number, offset, raw.rstrip(b"\r")))
            number += 1
            offset += len(raw) + 1
