r"""Literals: texts of which at least one stands in any line that a signature, a curve format or a parser may read.

Docker, log stores and structured loggers wrap a line as ``{"log": "...\n", "stream": "stderr", ...}``. Literals stand in
such a record as they stand in the line, unless it has escapes: then it must be unpacked before anything can be said of it.
The newline at the end of a message is an escape that hides nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from nccl_triage import byte_search
from nccl_triage.engine.schema import Signature
from nccl_triage.lazy_regex import lazily
from nccl_triage.scan import digit_folding

#: Sets of literals whose kinds are remembered.
_MAX_SETS = 10_000
#: Characters of a literal that costs next to nothing beside others; shorter ones stop the search at many words.
_LONG = 8
#: Roles of signatures of which no line may be missed.
_URGENT = ("root", "cascade")
NO_FORMATS: Mapping[str, Iterable[str]] = MappingProxyType({})
#: How a line begins that is a record.
RECORD_STARTS = ('{"', "{ ", "{\t")
RECORD_BYTES = tuple(start.encode() for start in RECORD_STARTS)
#: The same behind another line.
NEXT_RECORD = tuple(b"\n" + start for start in RECORD_BYTES)
_NEWLINE = b'\\n"'
_ESCAPE = lazily(rb'\\(?!n"|\\)|\\\\')


@dataclass(frozen=True, slots=True, eq=False)
class LineKind:
    """What the literals of a line say about it; lines with the same literals share one object.

    ``signatures`` is None for a line that is no candidate for rules, ``formats`` for one that no format can read.
    """

    signatures: tuple[Signature, ...] | None
    formats: tuple[str, ...] | None
    #: Whether no such line may be missed, since it may tell of a fault or a consequence, or open a block.
    urgent: bool = True
    #: Whether it only sounds like trouble.
    sounds: bool = False


class Sweep(NamedTuple):
    """Where literals end in a block of lines.

    ``ends`` are those of faults, consequences and of what opens a block, all of them, in order. ``firsts`` tells of each
    other literal (context, progress, numbers) that occurs, by its number, where it ends first. With ``records`` a line
    begins a JSON record, inside of which literals may be hidden (``may_hide_literals``). With ``verdicts`` some may be our own.
    """

    ends: list[int]
    firsts: dict[int, int]
    records: bool
    verdicts: bool


#: Looks through a block of whole lines for what must not be missed, without taking it apart.
Sweeper = Callable[[bytes], Sweep]


def may_hide_literals(raw: bytes) -> bool:
    """Tell whether a line is a record with escapes, in which literals may be hidden."""
    return raw.startswith(RECORD_BYTES) and raw.count(b"\\") != raw.count(_NEWLINE)


def escape_ends(data: bytes) -> Iterator[int]:
    """Yield the ends of escapes that may hide a literal, in records and elsewhere."""
    if data.count(b"\\") != data.count(_NEWLINE):
        for found in _ESCAPE.finditer(data):
            yield found.end()


@dataclass(slots=True)
class _Literal:
    """The owners of a literal: signatures, formats, the scanner's parsers (``further``).

    A ``word`` is one of the latter that only sounds like trouble. No line with an ``urgent`` literal may be missed; of the
    others a sample will do.
    """

    signatures: list[Signature] = field(default_factory=list)
    formats: list[str] = field(default_factory=list)
    further: bool = False
    word: bool = False
    urgent: bool = False


def _by_literal(
    signatures: Iterable[Signature],
    further: Iterable[str],
    formats: Mapping[str, Iterable[str]],
    words: Collection[str],
) -> dict[tuple[str, bool], _Literal]:
    table = {(text, False): _Literal(further=True, word=text in words, urgent=True) for text in (*further, *words)}
    for signature in signatures:
        anchors = signature.anchors
        if anchors is None:
            raise ValueError(f"signature {signature.id} has no anchors")
        urgent = signature.role in _URGENT
        for text in anchors.texts:
            owner = table.get((text, anchors.caseless))
            if owner is None:
                owner = table[(text, anchors.caseless)] = _Literal()
            owner.signatures.append(signature)
            owner.urgent = owner.urgent or urgent
    for name, texts in formats.items():
        for text in texts:
            # A literal that signatures look for in any case serves formats, too: their patterns decide.
            key = (text.lower(), True) if (text.lower(), True) in table else (text, False)
            named = table.setdefault(key, _Literal()).formats
            if name not in named:
                named.append(name)
    # The same order in every process: the compiled database is kept by it. Texts are sorted far faster than pairs.
    return {key: table[key] for key in sorted(table, key=lambda key: key[0] + "\0" * key[1])}


class Literals:
    """All literals and their owners, and the kinds of lines by their literals.

    Few sets of literals make up nearly all lines, so kinds are remembered by their set.
    """

    def __init__(
        self,
        signatures: Iterable[Signature],
        further: Iterable[str] = (),
        formats: Mapping[str, Iterable[str]] = NO_FORMATS,
        words: Collection[str] = (),
    ) -> None:
        table = _by_literal(signatures, further, formats, words)
        #: Each literal, and whether it is looked for in any case.
        self._texts = list(table)
        self._owners = list(table.values())
        self._urgent = [owner.urgent for owner in self._owners]
        self.texts = tuple(text for text, _ in table)
        self._kinds: dict[frozenset[int], LineKind] = {}

    @cached_property
    def with_digits(self) -> tuple[bytes, ...]:
        """The literals that hold digits, folded (``digit_folding.folded_literals``)."""
        return digit_folding.folded_literals(self.texts)

    @cached_property
    def _swept(self) -> list[int]:
        """The literals that a sweep looks for: wherever one of the others stands, so does one of these."""
        texts = self._texts
        starts = line_starts(len(text.encode()) for text, _ in texts)
        covered: set[int] = set()
        for number, end in self._found("\n".join(text for text, _ in texts).encode()):
            holder = bisect_right(starts, end - 1) - 1
            # What is looked for in any case may stand where this one, looked for as it is, does not.
            if self._urgent[number] and holder != number and (texts[number][1] or not texts[holder][1]):
                covered.add(holder)
        return [number for number in range(len(texts)) if number not in covered]

    def _sought(self, quick: bool) -> list[int]:
        """Return the literals of a sweep, or of one that is quick (see ``Prefilter``)."""
        return [n for n in self._swept if self._urgent[n] or self._is_quick(n)] if quick else self._swept

    def _is_quick(self, number: int) -> bool:
        text, caseless = self._texts[number]
        # Those of curves stand in every line that tells of a step.
        return len(text) >= _LONG and not caseless and not self._owners[number].formats

    def _found(self, data: bytes) -> list[tuple[int, int]]:
        """Return the literals that stand in some lines, with where they end; each of them once a line at least."""
        found = self.ends(data, range(len(self._texts)))
        return [(number, end) for number, ends in enumerate(found) for end in ends]

    def ends(self, data: bytes, literals: Iterable[int]) -> list[list[int]]:
        """See ``Prefilter``: one literal at a time, each as fast as memory is read."""
        lowered: bytes | None = None
        found: list[list[int]] = []
        for number in literals:
            text, caseless = self._texts[number]
            if caseless and lowered is None:
                lowered = data.lower()
            found.append(_ends(data if lowered is None or not caseless else lowered, text.encode()))
        return found

    def lasts(self, data: bytes, literals: Iterable[int]) -> list[int]:
        """See ``Prefilter``."""
        lowered: bytes | None = None
        found: list[int] = []
        for number in literals:
            text, caseless = self._texts[number]
            if caseless and lowered is None:
                lowered = data.lower()
            needle = text.encode()
            found.append((data if lowered is None or not caseless else lowered).rfind(needle) + len(needle))
        return found

    def of_numbers(self, literals: Iterable[int]) -> list[int]:
        """See ``Prefilter``."""
        return [number for number in literals if self._owners[number].formats]

    def of_progress(self, literals: Iterable[int]) -> list[int]:
        """See ``Prefilter``."""
        owners = self._owners
        return [
            number
            for number in literals
            if owners[number].formats or any(one.role == "progress" for one in owners[number].signatures)
        ]

    def _kinds_of(self, found: Mapping[int, set[int]]) -> dict[int, LineKind]:
        """Return the kinds of lines by the numbers of their literals."""
        known = self._kinds
        made: dict[int, LineKind] = {}
        for index, numbers in found.items():
            key = frozenset(numbers)
            kind = known.get(key)
            if kind is None:
                kind = self._kind(key)
                if len(known) < _MAX_SETS:
                    known[key] = kind
            made[index] = kind
        return made

    def _kind(self, numbers: Collection[int]) -> LineKind:
        literals = [self._owners[number] for number in numbers]
        owners = {signature.id: signature for literal in literals for signature in literal.signatures}
        formats = {name for literal in literals for name in literal.formats}
        candidate = bool(owners) or any(literal.further for literal in literals)
        return LineKind(
            tuple(owners[name] for name in sorted(owners)) if candidate else None,
            tuple(sorted(formats)) if formats else None,
            any(self._urgent[number] for number in numbers),
            not owners and not formats and all(literal.word for literal in literals),
        )


def _ends(data: bytes, literal: bytes) -> list[int]:
    """Return where a literal ends first in each line that holds it."""
    ends: list[int] = []
    at = byte_search.find(data, literal)
    while at >= 0:
        ends.append(at + len(literal))
        at = data.find(b"\n", at)
        at = byte_search.find(data, literal, at) if at >= 0 else -1
    return ends


def line_starts(lengths: Iterable[int]) -> list[int]:
    """Return where lines of these lengths begin in their text joined by newlines."""
    starts: list[int] = []
    position = 0
    for length in lengths:
        starts.append(position)
        position += length + 1
    return starts
