"""Take apart physical lines that hold carriage returns: progress bars, and what was printed between them.

tqdm redraws its bar with a carriage return and no newline, so one physical line can hold thousands of states
and a real message between or behind them; a record of a logger behind one is read as a line. Of each run of states the first and the last are kept (tqdm 4.x,
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
#: A state with a record of a logger or a traceback glued behind it: both write to standard error.
_GLUED = lazily(
    rb"[^|\[]{0,200}\d%\|[^|]{0,400}\|[^\[\]|]{0,60}\[[^\]]{0,400}\](?=\s{0,4}(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:|\[?\d\d:\d\d:\d\d[\s,.\]]"
    rb"|\d\d/\d\d/\d{4} \d\d:|\[rank\d{1,6}\]:|\[?[EWIF]\d{4} \d\d:|(?:ERROR|WARNING|CRITICAL|INFO)\b|Traceback \(most))"
)
#: A description that says any of this is a message with a bar glued to it.
_MESSAGE = lazily(r"(?i)error|exception|traceback|warn|fail|nccl|fatal|killed|abort")
#: All digits count as one, and a state keeps its length.
_FOLDED = bytes.maketrans(b"123456789", b"0" * 9)
#: Folded states that are remembered, and how often a line is looked at as a whole.
_MAX_FOLDED, _LOOKS = 4096, 4
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
        # Folded state -> the raw description, None where it needs a closer look.
        self._folded: dict[bytes, bytes | None] = {}

    def pieces(self, number: int, offset: int, body: bytes) -> Iterator[Piece]:
        """Yield what is worth reading of (a part of) a physical line.

        Called again with the same number, it goes on with the same line. ``flush`` must follow the last call.
        """
        if number != self._number:
            yield from self.flush()
            self._number, self._prefix, self._started = number, "", False
        looks, known, start = 0, 0, 0
        while start < len(body):
            if looks < _LOOKS and len(self._known) > known:
                looks, known = looks + 1, len(self._known)
                if self._skip_known(offset + start, body[start:]):
                    return
            end = body.find(b"\r", start)
            raw = body[start:end] if end >= 0 else body[start:]
            if raw:
                key = self._key(raw.translate(_FOLDED))
                if key is not None and key in self._known:
                    self._last[self._known[key]] = offset + start, raw
                else:
                    yield from self._piece(offset + start, raw, key)
            start += len(raw) + 1

    def _key(self, folded: bytes) -> bytes | None:
        """Return the raw description of a usual state without its numbers; None where the state needs a closer look."""
        try:
            return self._folded[folded]
        except KeyError:
            state = _PLAIN_BAR.fullmatch(folded)
            key = state[1].translate(None, b"0.") if state else None
            if len(self._folded) < _MAX_FOLDED:
                self._folded[folded] = key
            return key

    def _skip_known(self, offset: int, body: bytes) -> bool:
        """Take many states at once if all are of known bars, of which only the last ones count; tells whether they are."""
        states = body.translate(_FOLDED).split(b"\r")
        names = set()
        for folded in set(states):
            key = self._key(folded) if folded else None
            name = None if key is None else self._known.get(key)
            if name is not None:
                names.add(name)
            elif folded:
                return False
        end = len(body)
        while names:
            folded = states.pop()
            key = self._key(folded) if folded else None
            if key is not None and self._known[key] in names:
                names.remove(self._known[key])
                self._last[self._known[key]] = offset + end - len(folded), body[end - len(folded) : end]
            end -= len(folded) + 1
        return True

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
        if key is None and (glued := _GLUED.match(raw)) is not None:
            yield from self._piece(offset, raw[: glued.end()], None)
            offset, raw = offset + glued.end(), raw[glued.end() :]
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
