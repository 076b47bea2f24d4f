"""Bytes of a log as numbered lines of text.

``LineReader`` reads everything; a scanner that wants only some lines takes the blocks as they are (``raw_blocks``) and
has our own verdicts blanked in them (``verdicts``), reads some of them whole (``lines``), looks for candidates in the
bytes of others and decodes those (``decode``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap
from typing import BinaryIO, NamedTuple

from nccl_triage.ingest.blocks import BLOCK, MAX_LINE, Block, BlockReader
from nccl_triage.ingest.encodings import decode_utf8
from nccl_triage.ingest.filtered import looks_filtered
from nccl_triage.ingest.progress import ProgressFilter
from nccl_triage.ingest.verdicts import Verdicts
from nccl_triage.observations.store import SourceInfo

__all__ = ["Block", "Line", "LineReader", "looks_filtered"]


class Line(NamedTuple):
    """A line without its end.

    ``number`` is the physical line from 1; the parts of a line that holds carriage returns share it.
    ``offset`` is where the text begins in the unpacked stream (see ``Block.offset``).
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
        self.verdicts = Verdicts()
        self._continues = False

    def iter_blocks(self) -> Iterator[Block]:
        """Yield the blocks, in order; ``lines`` reads one. Bad bytes count only in what is decoded."""
        return map(self.verdicts.blank, self._reader)

    def raw_blocks(self) -> Iterator[Block]:
        """Yield the blocks as they are: whoever takes them gives each to ``verdicts``, or knows that there are none."""
        return iter(self._reader)

    def decode(self, data: bytes) -> str:
        """Return the text of bytes from a block; bad bytes are replaced and counted."""
        text, bad = decode_utf8(data)
        self._reader.problems.bad_bytes += bad
        return text

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines in order."""
        for block in self.iter_blocks():
            yield from self.lines(block)
        yield from self.rest()

    def lines(self, block: Block) -> Iterator[Line]:
        """Yield the lines of the next block, after what the one before it left over."""
        continues, self._continues = self._continues, not block.data.endswith(b"\n")
        if continues or b"\r" in block.data:
            yield from self._redrawn(block, continues)
        else:
            yield from self.rest()
            yield from self._plain(block)

    def is_plain(self, block: Block) -> bool:
        """Tell whether the next block is whole lines, so that it need not be given to ``lines``.

        What earlier blocks left over (``rest``) comes before it.
        """
        return not self._continues and block.data.endswith(b"\n")

    def pieces(self, number: int, offset: int, body: bytes) -> Iterator[Line]:
        """Yield what is worth reading of one whole line, which may hold carriage returns."""
        body = body.rstrip(b"\r")
        if b"\r" in body:
            yield from starmap(Line, self._progress.pieces(number, offset, body))
            yield from self.rest()
        else:
            yield Line(number, offset, self.decode(body))

    def rest(self) -> Iterator[Line]:
        """Yield what is left over of lines that are redrawn, where they end."""
        return starmap(Line, self._progress.flush())

    def held(self) -> list[Line]:
        """Return how the lines stand that are redrawn at the moment."""
        return list(starmap(Line, self._progress.held()))

    def finish(self) -> None:
        """Complete what ``info`` says, where lines were read after the last block had come."""
        self._reader.tell()

    def _plain(self, block: Block) -> Iterator[Line]:
        """Yield the lines of a block without carriage returns."""
        data, number, offset = block
        text = self.decode(data)
        lines = text.split("\n")
        if not lines[-1]:
            del lines[-1]
        # A third faster than Line(..), whose __new__ is written in Python.
        make = tuple.__new__
        if len(text) == len(data):
            for count, line in enumerate(lines):
                yield make(Line, (number + count, offset, line))
                offset += len(line) + 1
            return
        for count, (line, raw) in enumerate(zip(lines, data.split(b"\n"), strict=False)):
            yield make(Line, (number + count, offset, line))
            offset += len(raw) + 1

    def _redrawn(self, block: Block, continues: bool) -> Iterator[Line]:
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
                yield from starmap(Line, self._progress.pieces(number, offset, raw.rstrip(b"\r")))
            number += 1
            offset += len(raw) + 1
