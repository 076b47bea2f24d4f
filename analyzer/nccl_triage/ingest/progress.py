"""Take apart physical lines that hold carriage returns: progress bars, and what was printed between them.

tqdm redraws its bar with a carriage return and no newline, so one physical line can hold thousands of states
and a real message between or behind them. Of each run of states the first and the last are kept (tqdm 4.x,
``std.py``: ``{desc}: {percentage:3.0f}%|{bar}| {n}/{total} [{elapsed}<{remaining}, {rate}{postfix}]``),
everything that is not a bar is kept.

Ray, torchelastic and srun prefix what they forward at newlines only: the states behind the first carriage
return have lost the prefix that says who printed them. It is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nccl_triage.lazy_regex import lazily

#: One piece of a physical line: its line number, its offset and its text.
Piece = tuple[int, int, str]

#: Bars of one run told apart by their description; with more, a new run begins.
_MAX_BARS = 32
_BAR = lazily(
    r"(?P<desc>[^|]{0,200}?)\d{1,3}%\|[^|]{0,400}(?:\|[^\[\]|]{0,60}(?:\[[^\]]{0,400}\]?)?)?"
    r"(?:\s|\x1b\[[\d;]*[A-Za-z])*"
)
#: The usual state, matched without backtracking: the description has neither "%" nor "|".
_PLAIN_BAR = lazily(rb"([^|%]{0,200})(?<=\d)%\|[^|]{0,400}\|[^\[\]|]{0,60}\[[^\]]{0,400}\]\s*")
#: A description that says any of this is a message with a bar glued to it.
_MESSAGE = lazily(r"(?i)error|exception|traceback|warn|fail|nccl|fatal|killed|abort")
_DIGITS = lazily(r"\d+(?:\.\d+)?")
_ANSI = r"(?:\x1b\[[\d;]*m)*"
_PREFIX = lazily(
    rf"(?:{_ANSI}(?:"
    r"\((?:[^()\n]|\([^()\n]*\)){0,160}?pid=\d+[^()\n]{0,80}\)"  # (Actor pid=12, ip=10.0.0.1)
    r"|\[(?:[A-Za-z_][\w-]{0,40}?\d+|\d+,\d+)\](?:<\w+>)?:"  # [default0]: [rank3]: [1,3]<stderr>:
    r"|\s{0,8}\d{1,6}:(?=\s|$)"  # srun --label
    rf"){_ANSI} ?)+"
)


class ProgressFilter:
    """Split physical lines at carriage returns and thin out the bars; one object reads one source."""

    def __init__(self, decode: Callable[[bytes], str]) -> None:
        self._decode = decode
        self._number = 0
        self._prefix = ""
        self._started = False
        # Description of each bar of the run -> its last state, if that is not shown yet.
        self._last: dict[str, tuple[int, bytes] | None] = {}
        # The same by the raw description, for states that need no closer look.
        self._known: dict[bytes, str] = {}

    def pieces(self, number: int, offset: int, body: bytes) -> Iterator[Piece]:
        """Yield what is worth reading of (a part of) a physical line.

        Called again with the same number, it goes on with the same line. ``flush`` must follow the last call.
        """
        if number != self._number:
            yield from self.flush()
            self._number, self._prefix, self._started = number, "", False
        for raw in body.split(b"\r"):
            state = _PLAIN_BAR.fullmatch(raw)
            key = state[1].translate(None, b"0123456789.") if state else b""
            if key in self._known:
                self._last[self._known[key]] = offset, raw
            elif raw:
                yield from self._piece(offset, raw, key if state else None)
            offset += len(raw) + 1

    def flush(self) -> Iterator[Piece]:
        """Yield the last states of the bars of the current run, which ends."""
        held = self.held()
        self._last.clear()
        self._known.clear()
        yield from held

    def held(self) -> list[Piece]:
        """Return the last states of the bars of the current run."""
        states = sorted(state for state in self._last.values() if state is not None)
        return [(self._number, offset, "".join(self._parts(self._decode(raw)))) for offset, raw in states]

    def _parts(self, text: str) -> tuple[str, str]:
        """Return the prefix that says who printed this, its own or that of the line, and the rest."""
        found = _PREFIX.match(text)
        return (found.group(), text[found.end() :]) if found else (self._prefix, text)

    def _piece(self, offset: int, raw: bytes, key: bytes | None) -> Iterator[Piece]:
        text = self._decode(raw)
        if not text.strip():
            return
        prefix, rest = self._parts(text)
        if not self._started:
            self._prefix, self._started = prefix, True
        if not rest.strip():
            return
        bar = _BAR.fullmatch(rest)
        if bar is None or _MESSAGE.search(bar["desc"]):
            yield from self.flush()
            yield self._number, offset, prefix + rest
            return
        # The description may count something: one bar for all its values.
        description = prefix + _DIGITS.sub("#", bar["desc"]).strip()
        if description in self._last:
            self._last[description] = offset, raw
        else:
            if len(self._last) >= _MAX_BARS:
                yield from self.flush()
            self._last[description] = None
            yield self._number, offset, prefix + rest
        if key is not None:
            self._known[key] = description
