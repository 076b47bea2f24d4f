"""Where the opening of a source comes again: a program that is started again prints its first lines again.

No program and no launcher has to be known for that. Only the beginning of a source is looked at, up to a size that is
always read line by line by one process, so that the answer depends on the input alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import AnyStr

from nccl_triage.ingest.blocks import LineBlock
from nccl_triage.lazy_regex import lazily

#: Distinct first lines that make an opening, and how many of them must come again, in order, within so many lines.
LINES, ENOUGH, WITHIN = 8, 5, 25
#: With which of them it must begin, counted from 0: programs also repeat blocks that stand near their beginning.
FIRST = 1
#: Lines at the beginning of a source among which its opening is looked for.
HEAD = 60
#: Characters of a source that are looked at, and openings that are kept.
MOST, KEPT = 16 << 20, 400
#: Characters of a line that are compared; letters that it must have.
WIDTH, LETTERS = 80, 6
#: Bytes that hold so many characters of a line.
_BYTES = 4 * WIDTH
#: What differs between two starts of a program: numbers, hexadecimal ids, and what holds a digit.
_VARIES = lazily(r"(?<!\S)[^\s\d]*\d\S*")
_LETTER = lazily(r"[^\W\d_]")


class Openings:
    """Looks for the opening of one source in its further lines."""

    def __init__(self) -> None:
        #: The numbers of lines at which the opening comes again.
        self.found: list[int] = []
        self._opening: list[str] = []
        #: The longest part of each of its lines that is the same each time.
        self._marks: tuple[str, ...] = ()
        self._left = MOST
        #: The number of the line with which the opening is complete enough.
        self._behind = 0
        #: Lines of the opening that were met last: the place in the opening, and the number of the line.
        self._met: list[tuple[int, int]] = []
        #: Whether no further line can tell more.
        self.done = False

    def read(self, numbers: Sequence[int], texts: Sequence[str]) -> None:
        """Take the next lines of the source."""
        if self._begins(numbers, texts):
            joined = "\n".join(texts)
            for index, _, _ in _lines_with(joined, self._marks, "\n"):
                self._meet(numbers[index], texts[index])
            self._took(len(joined))

    def search(self, block: LineBlock) -> None:
        """Take the next lines of the source as a block, of which only those are decoded that may be of the opening."""
        if self.done:
            return
        data = block.data
        head = [] if self._opening else [raw.decode("utf-8", "replace") for raw in data.split(b"\n", HEAD)[:HEAD]]
        if self._begins(range(block.first_line, block.first_line + len(head)), head):
            for index, start, end in _lines_with(data, [mark.encode() for mark in self._marks], b"\n"):
                self._meet(block.first_line + index, data[start : min(end, start + _BYTES)].decode("utf-8", "replace"))
            self._took(len(data))

    def _begins(self, numbers: Sequence[int], texts: Sequence[str]) -> bool:
        """Learn the opening from the first lines, and tell whether it is worth looking for."""
        if not self._opening and not self.done:
            self._learn(numbers, texts)
        return not self.done

    def _took(self, size: int) -> None:
        self._left -= size
        self.done = self._left <= 0 or len(self.found) >= KEPT

    def result(self) -> tuple[int, ...]:
        """Return the line with which the opening is complete and those at which it comes again; nothing if it never does."""
        return (self._behind, *self.found) if self.found else ()

    def _learn(self, numbers: Sequence[int], texts: Sequence[str]) -> None:
        """Learn the opening from the first lines."""
        for number, text in zip(numbers[:HEAD], texts, strict=False):
            template = _template(text)
            if len(_LETTER.findall(template)) >= LETTERS and template not in self._opening:
                self._opening.append(template)
                if len(self._opening) <= ENOUGH:
                    self._behind = number
            if len(self._opening) == LINES:
                break
        marks = {max(template.split("\0"), key=len) for template in self._opening}
        self._marks = tuple(sorted(mark for mark in marks if len(_LETTER.findall(mark)) >= LETTERS))
        self.done = len(self._opening) < ENOUGH or len(self._marks) < ENOUGH

    def _meet(self, number: int, text: str) -> None:
        template = _template(text)
        if number <= self._behind or template not in self._opening:
            return
        place = self._opening.index(template)
        self._met = [(at, line) for at, line in self._met if number - line < WITHIN and at < place]
        if not self._met and place > FIRST:
            return
        self._met.append((place, number))
        if len(self._met) == ENOUGH:
            self.found.append(self._met[0][1])
            self._met.clear()


def _template(text: str) -> str:
    """Return a line without what differs between two starts."""
    return str(_VARIES.sub("\0", text[:WIDTH].strip()))


def _lines_with(text: AnyStr, marks: Sequence[AnyStr], newline: AnyStr) -> Iterator[tuple[int, int, int]]:
    """Yield the index, the start and the end of each line that holds a mark, in order."""
    found: dict[int, int] = {}
    for mark in marks:
        at = text.find(mark)
        while at >= 0:
            end = text.find(newline, at)
            end = len(text) if end < 0 else end
            found[text.rfind(newline, 0, at) + 1] = end
            at = text.find(mark, end)
    index = counted = 0
    for start in sorted(found):
        index += text.count(newline, counted, start)
        counted = start
        yield index, start, found[start]
