"""Lines without their digits, and with others.

Folded lines show what all lines of a shape have in common; a line with other digits stands for another line of its shape.

"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from nccl_triage.lazy_regex import lazily

if TYPE_CHECKING:
    from random import Random

HEX = b"0x"
#: How pointers begin in folded lines.
_FOLDED_HEX = b"\x01x"
_POINTER_SOURCE = r"(?<![0-9A-Za-z])0x[0-9a-fA-F]+"
#: What counts as one number of a line.
NUMBER_SOURCE = rf"{_POINTER_SOURCE}|[0-9]+"
NUMBER = lazily(NUMBER_SOURCE.encode())
_PARTED = lazily(f"({NUMBER_SOURCE})".encode())
_POINTER = lazily(_POINTER_SOURCE.encode())
_ZERO = ord("0")
_ZEROS = lazily(rb"0+")
#: Folds digits, but not those of pointers (``fold``).
FOLD = bytes.maketrans(b"123456789", b"000000000")
#: Folds all that may stand in a pointer.
_COARSE = bytes.maketrans(b"123456789abcdefABCDEF", b"0" * 21)
#: Lines with pointers that are remembered.
_MAX_LINES = 8000
#: Another digit for each; none becomes a leading zero.
_OTHER = bytes.maketrans(b"0123456789abcdefABCDEF", b"1234567898bcdefaBCDEFA")

#: Bytes of lines of which it is remembered which digits may belong to literals.
_SHORT = 512
#: Bytes of a literal, with its first digit, by which it is found.
_PART = 4
#: Bytes between two parts that are cut out as one.
_NEAR = 2
#: Cuts some parts out of a line.
Pick = Callable[[bytes], Hashable]


def parted(raw: bytes) -> tuple[tuple[bytes, ...], list[bytes]]:
    """Return what stands between the numbers of a line, and the numbers."""
    pieces = _PARTED.split(raw)
    return tuple(pieces[::2]), pieces[1::2]


def fold(raw: bytes) -> bytes:
    """Return a line with 0 for every digit. Those of pointers (``0x..``) are folded, too, and told from ``8x80``."""
    if HEX in raw:
        raw = _POINTER.sub(lambda found: _FOLDED_HEX.ljust(len(found[0]), b"0"), raw)
    return raw.translate(FOLD)


class Folder:
    """Folds lines as ``fold`` does, and takes half the time for lines with pointers like those of an earlier one.

    Two lines have their pointers in the same places when their hexadecimal digits and each ``0x`` stand in the same
    places and all else is equal. They fold to the same when what lies between the pointers folds to the same.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Pick, dict[Hashable, bytes]]] = {}
        self._lines = 0

    def fold(self, raw: bytes) -> bytes:
        """Return ``fold`` of a line."""
        if HEX not in raw:
            return raw.translate(FOLD)
        marked = raw.replace(HEX, _FOLDED_HEX)
        coarse = marked.translate(_COARSE)
        known = self._known.get(coarse)
        if known is not None:
            between, lines = known
            found = lines.get(between(marked.translate(FOLD)))
            if found is not None:
                return found
        return self._learn(raw, marked, coarse)

    def _learn(self, raw: bytes, marked: bytes, coarse: bytes) -> bytes:
        if self._lines >= _MAX_LINES:
            self._known.clear()
            self._lines = 0
        self._lines += 1
        known = self._known.get(coarse)
        if known is None:
            cuts = [0, *(at for found in _POINTER.finditer(raw) for at in found.span()), len(raw)]
            known = itemgetter(*(slice(*span) for span in zip(cuts[::2], cuts[1::2], strict=True))), {}
            self._known[coarse] = known
        folded = known[1][known[0](marked.translate(FOLD))] = fold(raw)
        return folded


def possible_literals(folded: bytes, literals: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the folded literals that may stand in a line whose numbers are longer or shorter."""
    short = _ZEROS.sub(b"0", folded.lower())
    return tuple(literal for literal in literals if _ZEROS.sub(b"0", literal) in short)


def literal_digits(folded: bytes, literals: tuple[bytes, ...]) -> Pick | None:
    """Return what cuts out the digits of a line that may belong to one of the folded literals (``folded_literals``)."""
    # The logs of a job have the same lines; long ones are seldom and would fill the table.
    return (_literal_digits if len(folded) <= _SHORT else _literal_digits.__wrapped__)(folded, literals)


@lru_cache(maxsize=1 << 12)
def _literal_digits(folded: bytes, literals: tuple[bytes, ...]) -> Pick | None:
    lowered = folded.lower()
    spans: set[tuple[int, int]] = set()
    parts = _by_part(literals)
    digit = lowered.find(b"0")
    while digit >= 0:
        for before, size, having in parts:
            start = digit - before
            for literal, first, digits in having.get(lowered[start : start + size], ()) if start >= 0 else ():
                at = digit - first
                if at >= 0 and lowered.startswith(literal, at):
                    spans.update((at + n, at + n + 1) for n in digits)
        digit = lowered.find(b"0", digit + 1)
    return pick(sorted(spans))


#: A literal, the place of its first digit, and those of all of its digits.
_Placed = tuple[bytes, int, list[int]]


@lru_cache(maxsize=64)
def _by_part(literals: tuple[bytes, ...]) -> list[tuple[int, int, dict[bytes, list[_Placed]]]]:
    """Return the literals by a few bytes around their first digit, for each number of bytes before it and in all."""
    found: dict[tuple[int, int], dict[bytes, list[_Placed]]] = {}
    for literal in literals:
        digits = [n for n, code in enumerate(literal) if code == _ZERO]
        start = max(0, digits[0] + 1 - _PART)
        part = literal[start : start + _PART]
        of_form = found.setdefault((digits[0] - start, len(part)), {})
        of_form.setdefault(part, []).append((literal, digits[0], digits))
    return [(before, size, having) for (before, size), having in found.items()]


def folded_literals(texts: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the literals that hold digits, folded and in lower case."""
    raw = [text.encode() for text in texts]
    # Few hold digits: these are found in all of them at once.
    held = b"\n".join(raw).translate(FOLD).split(b"\n")
    folded = {fold(text).lower() for text, zeros in zip(raw, held, strict=True) if _ZERO in zeros}
    return tuple(sorted(literal for literal in folded if _ZERO in literal))


def changed(raw: bytes, start: int, end: int) -> bytes:
    """Return a line with other digits in one of its numbers."""
    kept = start + 2 if raw.startswith(HEX, start) else start
    return raw[:kept] + raw[kept:end].translate(_OTHER) + raw[end:]


def pick(spans: Iterable[tuple[int, int]]) -> Pick | None:
    """Return what cuts these spans out of a line; None without any."""
    slices = [slice(start, end) for start, end in _joined(list(spans))]
    return itemgetter(*slices) if slices else None


def pick_numbers(spans: Sequence[tuple[int, int]], matter: Iterable[int]) -> Pick | None:
    """Return what cuts out the numbers that matter in lines of a shape; None without any.

    What stands between neighbouring numbers is the same in all lines of the shape, so that they are cut out together.
    """
    runs: list[tuple[int, int]] = []
    before = -1
    for index in matter:
        if runs and index == before + 1:
            runs[-1] = (runs[-1][0], spans[index][1])
        else:
            runs.append(spans[index])
        before = index
    return pick(runs)


def _joined(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans, joining those that lie close together: fewer cuts are faster than fewer characters."""
    if not spans:
        return
    start, end = spans[0]
    for (_, _), (begin, stop) in pairwise(spans):
        if begin - end > _NEAR:
            yield start, end
            start = begin
        end = stop
    yield start, end


_NUMBER_TEXT = lazily(NUMBER_SOURCE)
#: Other digits for all, none of which becomes a leading zero: no two of the eight agree in one but in that of 0.
_OTHER_DIGITS = tuple(
    str.maketrans("0123456789abcdefABCDEF", f"{n + 1}{'123456789'[n + 1 :]}{'123456789'[: n + 1]}bcdefabcdefa")
    for n in range(8)
)
_CLOCK = r"(?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,][0-9]{1,9})?"
_DATE = (
    r"(?:(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[ T_]|(?P<us>[0-9]{2}/[0-9]{2}/)[0-9]{4} "
    r"|[A-Z][a-z]{2}\s+(?P<date>[0-9]{1,2}) (?P<then>[0-9]{4} )?|(?P<short>[0-9]{3,4}|[0-9]{2}-[0-9]{2}) )"
)
#: A date and a time of day, in the ways that logs write them.
STAMP = lazily(_DATE + _CLOCK + r"(?: [0-9]{4}\b)?")


def revalued(line: str, turn: int) -> str:
    """Return a line in which all digits are others; time stamps stay valid.

    Equal numbers get different digits in one of the turns 0 and 1 at least, so that it shows which of them is meant;
    of a line with more than 64 numbers turn 2 still tells those apart that the first two do not.
    """
    from random import Random  # slow to import, and of few lines is this asked

    parts: list[str] = []
    behind = 0
    for index, number in enumerate(_NUMBER_TEXT.finditer(line)):
        start, end = number.span()
        start += 2 * line.startswith("0x", start, end)
        steps = (index & 7, index >> 3 & 7, index + 3 + (index >> 6) & 7)[turn]
        parts += [line[behind:start], line[start:end].translate(_OTHER_DIGITS[steps])]
        behind = end
    other = "".join((*parts, line[behind:]))
    chance = Random(turn)
    for stamp in STAMP.finditer(line):
        for name in filter(stamp.group, stamp.groupdict()):
            start, end = stamp.span(name)
            other = other[:start] + _moment(name, stamp[name], chance) + other[end:]
    return other


def _moment(name: str, value: str, chance: Random) -> str:
    """Return another value of a part of a stamp, with as many digits."""
    if name == "clock":
        return f"{chance.randrange(10, 24)}:{chance.randrange(10, 60)}:{chance.randrange(10, 60)}"
    if name in ("year", "then"):
        return value.replace(value[:4], str(chance.randrange(2001, 2037)), 1)
    month, day = chance.randrange(10, 13), chance.randrange(10, 29)
    if name == "us":
        return f"{month}/{day}/"
    if name == "short":
        return f"{month}-{day}" if "-" in value else f"{month if len(value) == 4 else chance.randrange(1, 10)}{day}"
    if len(value) == 1:
        return str(chance.randrange(1, 10))
    return str(month if name == "month" else day)
