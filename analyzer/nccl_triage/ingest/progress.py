"""Take apart physical lines that hold carriage returns: progress bars, and what was printed between their states.

tqdm redraws its bar with a carriage return and no newline, so one physical line can hold thousands of states
and a real message between or behind them. Of each run of states the first and the last are kept (tqdm 4.x,
``std.py``: ``{desc}: {percentage:3.0f}%|{bar}| {n}/{total} [{elapsed}<{remaining}, {rate}{postfix}]``),
everything that is not a bar is kept.

Ray, torchelastic and srun prefix what they forward at newlines only: the states behind the first carriage
return have lost the prefix that says who printed them. It is put back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

#: One piece of a physical line: its line number, its offset and its text.
Piece = tuple[int, int, str]

#: Bars of one run told apart by their description; with more, a new run begins.
_MAX_BARS = 32
_BAR = re.compile(
    r"(?P<desc>[^|]{0,200}?)\d{1,3}%\|[^|]{0,400}(?:\|[^\[\]|]{0,60}(?:\[[^\]]{0,400}\]?)?)?"
    r"(?:\s|\x1b\[[\d;]*[A-Za-z])*"
)
#: A description that says any of this is a message with a bar glued to it.
_MESSAGE = re.compile(r"(?i)error|exception|traceback|warn|fail|nccl|fatal|killed|abort")
_DIGITS = re.compile(r"\d+(?:\.\d+)?")
_ANSI = r"(?:\x1b\[[\d;]*m)*"
_PREFIX = re.compile(
    rf"(?:{_ANSI}(?:"
    r"\((?:[^()\n]|\([^()\n]*\)){0,160}?pid=\d+[^()\n]{0,80}\)"  # (Actor pid=12, ip=10.0.0.1)
    r"|\[(?:[A-Za-z_][\w-]{0,40}?\d+|\d+,\d+)\](?:<\w+>)?:"  # [default0]: [rank3]: [1,3]<stderr>:
    r"|\s{0,8}\d{1,6}:(?=\s|$)"  # srun --label
    rf"){_ANSI} ?)+"
)


class ProgressFilter:
    """Split physical lines at carriage returns and thin out the bars; one object reads one source."""

    def __init__(self) -> None:
        self._number = 0
        self._prefix = ""
        self._started = False
        self._last: dict[str, Piece | None] = {}

    def pieces(self, number: int, parts: Iterable[tuple[int, str]]) -> Iterator[Piece]:
        """Yield what is worth reading of the (offset, text) parts of a physical line.

        Called again with the same number, it goes on with the same line. ``flush`` must follow the last call.
        """
        if number != self._number:
            yield from self.flush()
            self._number, self._prefix, self._started = number, "", False
        for offset, text in parts:
            yield from self._piece(offset, text)

    def flush(self) -> Iterator[Piece]:
        """Yield the last states of the bars of the current run."""
        held = [piece for piece in self._last.values() if piece is not None]
        self._last.clear()
        held.sort(key=lambda piece: piece[1])
        yield from held

    def _piece(self, offset: int, text: str) -> Iterator[Piece]:
        if not text.strip():
            return
        found = _PREFIX.match(text)
        prefix = found.group() if found else self._prefix
        rest = text[found.end() :] if found else text
        if not self._started:
            self._prefix, self._started = prefix, True
        if not rest.strip():
            return
        piece = (self._number, offset, prefix + rest)
        bar = _BAR.fullmatch(rest)
        if bar is None or _MESSAGE.search(bar["desc"]):
            yield from self.flush()
            yield piece
            return
        # The description may count something: one bar for all its values.
        description = prefix + _DIGITS.sub("#", bar["desc"]).strip()
        if description in self._last:
            self._last[description] = piece
            return
        if len(self._last) >= _MAX_BARS:
            yield from self.flush()
        self._last[description] = None
        yield piece
