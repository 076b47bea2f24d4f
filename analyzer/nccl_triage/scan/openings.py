"""Where the opening of a source comes again: a program that is started again prints its first lines again.

No program and no launcher has to be known for that. Only the beginning of a source is looked at, up to a size that is
always read line by line by one process, so that the answer depends on the input alone.
"""

from __future__ import annotations

from collections.abc import Sequence

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
#: What differs between two starts of a program: numbers, hexadecimal ids, and what holds a digit.
_VARIES = lazily(r"(?<!\S)[^\s\d]*\d\S*")
_LETTER = lazily(r"[^\W\d_]")


class Openings:
    """Looks for the opening of one source in its further lines."""

    def __init__(self) -> None:
        #: The numbers of lines at which the opening comes again.
        self.found: list[int] = []
        self._opening: list[str] = []
        self._starts: tuple[str, ...] = ()
        self._left = MOST
        #: The number of the line with which the opening is complete enough.
        self._behind = 0
        #: Lines of the opening that were met last: the place in the opening, and the number of the line.
        self._met: list[tuple[int, int]] = []
        #: Whether no further line can tell more.
        self.done = False

    def read(self, numbers: Sequence[int], texts: Sequence[str]) -> None:
        """Take the next lines of the source."""
        if self.done:
            return
        if not self._opening:
            self._learn(numbers, texts)
            if self.done:
                return
        for number, text in zip(numbers, texts, strict=True):
            if text.startswith(self._starts) and number > self._behind:
                self._meet(number, _template(text))
        self._left -= sum(map(len, texts))
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
        # What comes before the first digit is the same each time; a line that begins with one is not looked for.
        starts = {template.partition("\0")[0][:WIDTH] for template in self._opening}
        self._starts = tuple(sorted(start for start in starts if len(start) >= LETTERS))
        self.done = len(self._opening) < ENOUGH or len(self._starts) < ENOUGH

    def _meet(self, number: int, template: str) -> None:
        if template not in self._opening:
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
