"""Blocks of a storm: where many lines must be read, each line is looked up by its shape instead of searched for literals.

A block is folded and cut into lines at once, and a table tells of each line whether nothing is to be made of it, or of
what shape it is (``scan.shapes``). Only the lines of shapes that nobody has seen are searched. That costs the same for
every line, and pays as soon as a few in a hundred tell of faults.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import compress

from nccl_triage import octets
from nccl_triage.ingest.blocks import Block
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.verdicts import NAME
from nccl_triage.scan import folding
from nccl_triage.scan.lines import LineScan
from nccl_triage.scan.prefilter import Kind, Prefilter
from nccl_triage.scan.records import hides
from nccl_triage.scan.shapes import Shape, key
from nccl_triage.scan.sweeping import PATIENCE, STRIDE

#: Bytes of a block for each line that must be read, below which it is crowded; and by how many times more it no longer is.
BYTES, LOOSE = 4096, 2
#: Blocks in which one line of each kind of context and progress is taken that told nothing new lately, one in so many.
GLANCE = STRIDE + 1


class Crowd:
    """Takes whole blocks of one source, as long as they are crowded."""

    def __init__(self, lines: LineScan, prefilter: Prefilter) -> None:
        #: Whether the next block is to be tried.
        self.near = False
        self._lines = lines
        self._prefilter = prefilter
        self._taken = 0
        #: Lines of context and progress in a row that told nothing new, by what their literals tell.
        self._idle: dict[Kind, int] = {}

    def judge(self, block: Block, urgent: int) -> None:
        """Take how many lines of a block that was read otherwise had to be read."""
        self.near = urgent * BYTES > len(block.data)

    def take(self, block: Block, reader: LineReader, everything: bool) -> bool:
        """Scan a block of whole lines; False: nothing was done, since it is none for this.

        ``everything``: context and progress, too, where they told nothing new lately.
        """
        data = block.data
        if self._lines.open or reader.verdicts.open or b"\r" in data:
            return False
        folded, raws = octets.translate(data, folding.FOLD).split(b"\n"), data.split(b"\n")
        shapes = list(map(self._lines.shapes.table.get, folded))
        for lines in (raws, shapes):
            lines.pop()  # what follows the last newline
        kinds = self._search(raws, shapes)
        if kinds is None:
            return False
        self._taken += 1
        if everything or self._taken % GLANCE == 0:
            self._idle = {kind: min(idle, PATIENCE - 1) for kind, idle in self._idle.items()}
            for shape in set(shapes):
                if shape is not None:
                    shape.passed = shape.silent
        urgent = self._walk(block, raws, shapes, kinds, reader, sys.maxsize if everything else PATIENCE)
        self.near = urgent * BYTES * LOOSE > len(data)
        return True

    def _search(self, raws: Sequence[bytes], shapes: list[Shape | None]) -> dict[int, Kind] | None:
        """Find the other shapes that are known, and return what the literals of the lines without one tell.

        Those that hold none become silent. None: the block must be read otherwise.
        """
        known = self._lines.shapes
        strange: list[int] = []
        for index in [index for index, shape in enumerate(shapes) if shape is None]:
            raw = raws[index]
            if folding.HEX in raw:
                shapes[index] = known.table.get(known.folder.fold(raw))
            if shapes[index] is None:
                if NAME in raw:
                    return None
                strange.append(index)
        if not strange:
            return {}
        found = self._prefilter.kinds([raws[index].decode("utf-8", "replace") for index in strange])
        kinds = {strange[place]: kind for place, kind in found.items()}
        enough = self._lines.heard_enough
        silent = [
            index
            for index in strange
            if ((kind := kinds.get(index)) is None or (enough and kind.sounds)) and not hides(raws[index])
        ]
        for index, shape in zip(silent, known.silence([raws[index] for index in silent]), strict=True):
            shapes[index] = shape
        return kinds

    def _walk(
        self,
        block: Block,
        raws: Sequence[bytes],
        shapes: Sequence[Shape | None],
        kinds: Mapping[int, Kind],
        reader: LineReader,
        patience: int,
    ) -> int:
        """Take the lines of which something may be made; returns how many of them had to be read.

        Those of context and progress are passed over behind so many that told nothing new.
        """
        lines, idle, first = self._lines, self._idle, block.first_line
        read = behind = 0
        for index in compress(range(len(raws)), [shape is None or not shape.passed for shape in shapes]):
            if index < behind:
                continue
            shape, raw, number = shapes[index], raws[index], first + index
            if shape is not None and shape.literal is not None:
                shape = shape.variants.get(shape.literal(raw))
                if shape is not None and shape.silent:
                    continue
            kind = kinds.get(index) if shape is None else shape.kind
            urgent = kind is None or kind.urgent
            if kind is not None and not urgent and idle.get(kind, 0) >= patience:
                if shape is not None:
                    shape.passed = True
                continue
            read += urgent
            if shape is not None and (family := shape.family) is not None:
                group = family.groups.get(key(family, shape.values, raw))
                if group is not None and lines.is_counted(group, number):
                    group.add(number, raw)
                    if kind is not None and not urgent:
                        idle[kind] = idle.get(kind, 0) + 1
                    continue
            before = lines.gains
            lines.meet(number, raw, reader.decode(raw), kind)
            if kind is not None and not urgent:
                idle[kind] = 0 if lines.gains > before else idle.get(kind, 0) + 1
            behind = index + 1
            while lines.open and behind < len(raws):
                lines.follow(first + behind, reader.decode(raws[behind]), shapes[behind])
                behind += 1
        return read
