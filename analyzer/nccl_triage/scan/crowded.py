"""Blocks of a storm: where many lines must be read, each line is looked up by its shape instead of searched for literals.

A block is folded and cut into lines at once, and a table tells of each line whether nothing is to be made of it, or of
what shape it is (``scan.shapes``). Only the lines of shapes that nobody has seen are searched. That costs the same for
every line, and pays as soon as a few in a hundred tell of faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from nccl_triage import octets
from nccl_triage.ingest.blocks import Block
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.verdicts import NAME
from nccl_triage.scan import folding
from nccl_triage.scan.lines import LineScan
from nccl_triage.scan.prefilter import RECORD, Prefilter
from nccl_triage.scan.shapes import NEVER, Family, Shape, key

#: Bytes of a block for each line that must be read, below which it is crowded; and by how many times more it no longer is.
BYTES, LOOSE = 4096, 2
#: One in how many lines of a block may be of a shape that nobody has seen; how many more blocks with more of them there
#: may be than without, and for how many blocks none is tried then.
STRANGE, STRIKES, PAUSE = 3, 4, 64
#: Lines of a shape of context or progress that tell nothing new after which its lines are passed over.
PATIENCE = 64
#: Blocks in which one line of each such shape is taken, one in so many.
GLANCE = 16
_RECORD = tuple(start.encode() for start in RECORD)


class Crowd:
    """Takes whole blocks of one source, as long as they are crowded."""

    def __init__(self, lines: LineScan, prefilter: Prefilter) -> None:
        #: Whether the next block is to be tried.
        self.near = False
        self._lines = lines
        self._prefilter = prefilter
        self._pause = self._taken = self._strikes = 0

    def judge(self, block: Block, urgent: int) -> None:
        """Take how many lines of a block that was read otherwise had to be read."""
        if self._pause:
            self._pause -= 1
        self.near = urgent * BYTES > len(block.data) and not self._pause

    def take(self, block: Block, reader: LineReader, everything: bool) -> bool:
        """Scan a block of whole lines; False: nothing was done, since it is none for this.

        ``everything``: context and progress, too, where they told nothing new lately.
        """
        data = block.data
        if self._lines.open or reader.verdicts.open or b"\r" in data:
            return False
        known = self._lines.shapes
        folded = octets.translate(data, folding.FOLD).split(b"\n")
        folded.pop()
        shapes = list(map(known.table.get, folded))
        raws = data.split(b"\n")
        raws.pop()
        if not self._search(raws, shapes):
            return False
        self._taken += 1
        if self._taken % GLANCE == 0:
            for shape in set(shapes):
                if shape is not None and PATIENCE <= shape.idle < NEVER:
                    shape.idle = PATIENCE - 1
                    if shape.family is not None:
                        shape.family.idle = min(shape.family.idle, PATIENCE - 1)
        urgent = self._walk(block, raws, shapes, reader, NEVER if everything else PATIENCE)
        self.near = urgent * BYTES * LOOSE > len(data)
        return True

    def _search(self, raws: Sequence[bytes], shapes: list[Shape | None]) -> bool:
        """Search the lines whose shape is not known; False where the block must be read otherwise."""
        known, strange = self._lines.shapes, list[int]()
        for index in [index for index, shape in enumerate(shapes) if shape is None]:
            raw = raws[index]
            if folding.HEX in raw:
                shapes[index] = known.table.get(known.folder.fold(raw))
            if shapes[index] is None:
                if raw.startswith(_RECORD) or NAME in raw:
                    return False
                strange.append(index)
        self._strikes = max(0, self._strikes + (1 if len(strange) * STRANGE > len(raws) else -1))
        if self._strikes > STRIKES:
            self._strikes, self._pause, self.near = 0, PAUSE, False
            return False
        if strange:
            kinds = self._prefilter.kinds([raws[index].decode("utf-8", "replace") for index in strange])
            silent = [index for place, index in enumerate(strange) if place not in kinds]
            for index, shape in zip(silent, known.silence([raws[index] for index in silent]), strict=True):
                shapes[index] = shape
        return True

    def _walk(
        self, block: Block, raws: Sequence[bytes], shapes: Sequence[Shape | None], reader: LineReader, limit: int
    ) -> int:
        """Take the lines of which something may be made; returns how many of them had to be read.

        Those of a shape that is idle for the ``limit`` are passed over.
        """
        lines, first = self._lines, block.first_line
        urgent = behind = 0
        wanted = [shape is None or shape.idle < limit for shape in shapes]
        for index in compress(range(len(raws)), wanted):
            if index < behind:
                continue
            shape, raw, number = shapes[index], raws[index], first + index
            if shape is not None and shape.literal is not None:
                shape = shape.variants.get(shape.literal(raw))
                if shape is not None and shape.idle >= limit:
                    continue
            family = None if shape is None else shape.family
            if shape is not None and family is not None:
                if family.idle >= limit:
                    shape.idle = PATIENCE
                    continue
                values = shape.values  # the next lines are ``shapes.key`` and ``Group.add``, without calls
                if family.sensitive:
                    group = family.groups.get(key(family, values, raw))
                else:
                    group = family.groups.get(None if values is None else values(raw))
                if group is not None and (group.formats is None or lines.counts(group.formats, number)):
                    group.lines += 1
                    last = group.last
                    if group.waits == 1 and last:
                        last[0] = (number, raw)
                    else:
                        last.append((number, raw))
                        if len(last) > group.waits:
                            del last[0]
                    if shape.urgent:
                        urgent += 1
                    else:
                        self._tire(shape, family)
                    continue
            before = lines.gains
            lines.meet(number, raw, reader.decode(raw))
            if shape is None or shape.urgent:
                urgent += 1
            elif lines.gains > before:
                shape.idle = 0
                if family is not None:
                    family.idle = 0
            else:
                self._tire(shape, family)
            behind = index + 1
            while lines.open and behind < len(raws):
                lines.follow(first + behind, reader.decode(raws[behind]), shapes[behind])
                behind += 1
        return urgent

    @staticmethod
    def _tire(shape: Shape, family: Family | None) -> None:
        """Note that a line told nothing new."""
        shape.idle += 1
        if family is not None:
            family.idle += 1
            if family.idle >= PATIENCE:
                shape.idle = PATIENCE
