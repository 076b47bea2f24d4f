"""Lines as bytes, without their digits: what all lines of a shape have in common, and the digits cut out of one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter

from nccl_triage.patterns import lazily

HEX = b"0x"
#: How pointers begin in folded lines.
_FOLDED_HEX = b"\x01x"
_POINTER_SOURCE = r"(?<![0-9A-Za-z])0x[0-9a-fA-F]+"
#: What counts as one number of a line.
NUMBER_SOURCE = rf"{_POINTER_SOURCE}|[0-9]+"
NUMBER = lazily(NUMBER_SOURCE.encode())
_POINTER = lazily(_POINTER_SOURCE.encode())
_ZERO = ord("0")
_FOLD = bytes.maketrans(b"123456789", b"000000000")
#: Another digit for each; none becomes a leading zero.
_OTHER = bytes.maketrans(b"0123456789abcdefABCDEF", b"1234567898bcdefaBCDEFA")

#: Cuts some parts out of a line.
Pick = Callable[[bytes], Hashable]


def fold(raw: bytes) -> bytes:
    """Return a line with 0 for every digit, also of pointers, which stay apart from ``8x80``."""
    if HEX in raw:
        raw = _POINTER.sub(lambda found: _FOLDED_HEX.ljust(len(found[0]), b"0"), raw)
    return raw.translate(_FOLD)


def literal_digits(folded: bytes, literals: tuple[str, ...]) -> Pick | None:
    """Return what cuts out of a line the digits that may belong to one of the literals."""
    lowered = folded.lower()
    spans: set[tuple[int, int]] = set()
    for literal in _folded_literals(literals):
        at = lowered.find(literal)
        while at >= 0:
            spans.update((at + n, at + n + 1) for n, code in enumerate(literal) if code == _ZERO)
            at = lowered.find(literal, at + 1)
    return pick(sorted(spans))


@lru_cache(maxsize=4)
def _folded_literals(texts: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the literals that hold digits, as they stand in folded lines in lower case."""
    folded = {fold(text.encode()).lower() for text in texts}
    return tuple(sorted(literal for literal in folded if _ZERO in literal))


def changed(raw: bytes, start: int, end: int) -> bytes:
    """Return a line with other digits in one of its numbers."""
    kept = start + 2 if raw.startswith(HEX, start) else start
    return raw[:kept] + raw[kept:end].translate(_OTHER) + raw[end:]


def pick(spans: Iterable[tuple[int, int]]) -> Pick | None:
    """Return what cuts these parts out of a line; None for no parts."""
    slices = [slice(start, end) for start, end in _joined(list(spans))]
    return itemgetter(*slices) if slices else None


def _joined(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans, those that lie close together as one: fewer cuts are faster than fewer characters."""
    if not spans:
        return
    start, end = spans[0]
    for (_, _), (begin, stop) in pairwise(spans):
        if begin - end > 2:
            yield start, end
            start = begin
        end = stop
    yield start, end
