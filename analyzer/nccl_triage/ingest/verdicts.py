"""What nccl-triage itself has printed into a log, blanked.

A job that ``nccl-triage run`` wraps, or whose batch script triages it, ends its log with a verdict. It quotes the lines
that it rests on and names what else they could mean, and would be evidence for itself.
"""

from __future__ import annotations

from nccl_triage.ingest.blocks import Block
from nccl_triage.patterns import lazily

#: Stands in every verdict.
NAME = b"nccl-triage:"
#: The name of the headline; colours may stand before it.
_HEADLINE = lazily(rb"(?:\x1b\[[\d;]{0,20}m){0,8}" + NAME)
#: What every other line of a verdict begins with.
_INDENT = b"  "


class Verdicts:
    """Blanks verdicts in the blocks of one source, block by block in their order."""

    def __init__(self) -> None:
        self._start: tuple[int, bytes] | None = None

    @property
    def open(self) -> bool:
        """Whether the next block may go on with a verdict; another one has nothing to blank without ``NAME``."""
        return self._start is not None

    def blank(self, block: Block) -> Block:
        """Return the next block with spaces in place of verdicts; what a launcher put before their lines stays."""
        if self._start is None and NAME not in block.data:
            return block
        data, self._start = _blank(block.data, self._start)
        return block._replace(data=data)


def _blank(data: bytes, start: tuple[int, bytes] | None) -> tuple[bytes, tuple[int, bytes] | None]:
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

    Times differ from line to line, so the prefixes are compared by their ends and lengths only.
    """
    if not line.startswith(_INDENT, column):
        return False
    return line[:1] == prefix[:1] and line[column - 1 : column] == prefix[-1:] if column else True
