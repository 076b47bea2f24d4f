"""Find the lines that contain a literal of some signature, many literals at once.

With the ``hyperscan`` wheel (Vectorscan inside) the whole batch is scanned in one call; without it each literal is
searched with ``str.find``, which is slower and finds the same. Both return, for each line of the batch, the
signatures whose patterns are worth running; a line that only holds a further literal (one that opens a block for a
stateful parser) has none, but is returned. Formats of curves have literals, too, and are returned apart: they make no
line a candidate for rules.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from nccl_triage.engine import cache
from nccl_triage.engine.schema import Signature

#: Set to 1 to use the slow matcher although hyperscan is installed (tests compare both).
NO_HYPERSCAN = "NCCL_TRIAGE_NO_HYPERSCAN"
#: Sets of literals whose formats are remembered.
_MAX_SETS = 10_000
NO_FORMATS: Mapping[str, Iterable[str]] = MappingProxyType({})


#: Line of a batch -> signatures whose literals it contains; line -> ids of formats whose literals it contains.
Found = tuple[dict[int, list[Signature]], dict[int, tuple[str, ...]]]


class Prefilter(Protocol):
    """What the scanner needs: candidates by line of a batch."""

    def search(self, lines: Sequence[str]) -> Found:
        """Return the candidates of signatures and those of formats; no entry for a line without literals."""
        ...

    def candidates(self, lines: Sequence[str]) -> dict[int, list[Signature]]:
        """Return line index -> signatures whose literals the line contains; no entry for a line without literals."""
        ...


@dataclass(slots=True)
class _Literal:
    """Whose literal a text is: of signatures, of formats, of the scanner's parsers (``further``)."""

    signatures: list[Signature] = field(default_factory=list)
    formats: list[str] = field(default_factory=list)
    further: bool = False


def _by_literal(
    signatures: Iterable[Signature], further: Iterable[str], formats: Mapping[str, Iterable[str]]
) -> dict[tuple[str, bool], _Literal]:
    table: dict[tuple[str, bool], _Literal] = {(text, False): _Literal(further=True) for text in further}
    for signature in signatures:
        if signature.anchors is None:
            raise ValueError(f"signature {signature.id} has no anchors")
        for text in signature.anchors.texts:
            table.setdefault((text, signature.anchors.caseless), _Literal()).signatures.append(signature)
    for name, texts in formats.items():
        for text in texts:
            # A literal that signatures look for in any case serves formats, too: their patterns decide.
            key = (text.lower(), True) if (text.lower(), True) in table else (text, False)
            owner = table.setdefault(key, _Literal()).formats
            if name not in owner:
                owner.append(name)
    return dict(sorted(table.items()))  # the same order in every process: the compiled database is kept by it


class _Owners:
    """Turns the literals found in lines into what they are literals of."""

    def __init__(self, literals: Iterable[_Literal]) -> None:
        self._literals = list(literals)
        self._candidates = {n for n, literal in enumerate(self._literals) if literal.further or literal.signatures}
        self._measuring = {n for n, literal in enumerate(self._literals) if literal.formats}
        self._formats: dict[frozenset[int], tuple[str, ...]] = {}

    def split(self, found: Mapping[int, set[int]]) -> Found:
        """Return the candidates for rules and the lines that a format may read."""
        candidates: dict[int, list[Signature]] = {}
        measured: dict[int, tuple[str, ...]] = {}
        for index, numbers in found.items():
            if not self._candidates.isdisjoint(numbers):
                owners = {id(s): s for number in numbers for s in self._literals[number].signatures}
                candidates[index] = sorted(owners.values(), key=lambda signature: signature.id)
            if not self._measuring.isdisjoint(numbers):
                measured[index] = self._formats_of(frozenset(self._measuring & numbers))
        return candidates, measured

    def _formats_of(self, numbers: frozenset[int]) -> tuple[str, ...]:
        """Return the formats of some literals, sorted; few sets of literals make up nearly all lines."""
        known = self._formats.get(numbers)
        if known is None:
            known = tuple(sorted({name for number in numbers for name in self._literals[number].formats}))
            if len(self._formats) < _MAX_SETS:
                self._formats[numbers] = known
        return known


class LiteralPrefilter:
    """The fallback: one ``find`` loop per literal over the joined batch."""

    def __init__(
        self,
        signatures: Iterable[Signature],
        further: Iterable[str] = (),
        formats: Mapping[str, Iterable[str]] = NO_FORMATS,
    ) -> None:
        table = _by_literal(signatures, further, formats)
        self._texts, self._owners = list(table), _Owners(table.values())

    def candidates(self, lines: Sequence[str]) -> dict[int, list[Signature]]:
        """See ``Prefilter``."""
        return self.search(lines)[0]

    def search(self, lines: Sequence[str]) -> Found:
        """See ``Prefilter``."""
        text = "\n".join(lines)
        lowered = "\n".join(line.lower() for line in lines)
        starts = _starts(len(line) for line in lines)
        lowered_starts = _starts(len(line.lower()) for line in lines)
        found: dict[int, set[int]] = defaultdict(set)
        for number, (literal, caseless) in enumerate(self._texts):
            haystack, offsets = (lowered, lowered_starts) if caseless else (text, starts)
            position = haystack.find(literal)
            while position >= 0:
                index = bisect_right(offsets, position) - 1
                found[index].add(number)
                end = offsets[index + 1] if index + 1 < len(offsets) else len(haystack)
                position = haystack.find(literal, end)
        return self._owners.split(found)


class HyperscanPrefilter:
    """All literals in one Hyperscan database, block mode."""

    def __init__(
        self,
        signatures: Iterable[Signature],
        further: Iterable[str] = (),
        formats: Mapping[str, Iterable[str]] = NO_FORMATS,
    ) -> None:
        import hyperscan

        table = _by_literal(signatures, further, formats)
        self._owners = _Owners(table.values())
        self._database = _database(hyperscan, list(table))

    def candidates(self, lines: Sequence[str]) -> dict[int, list[Signature]]:
        """See ``Prefilter``."""
        return self.search(lines)[0]

    def search(self, lines: Sequence[str]) -> Found:
        """See ``Prefilter``."""
        encoded = [line.encode("utf-8", "surrogatepass") for line in lines]
        hits: list[tuple[int, int]] = []

        def on_match(identifier: int, start: int, end: int, flags: int, context: object) -> None:
            hits.append((end - 1, identifier))

        self._database.scan(b"\n".join(encoded), match_event_handler=on_match)
        if not hits:
            return {}, {}
        starts = _starts(len(line) for line in encoded)
        found: dict[int, set[int]] = defaultdict(set)
        for position, identifier in hits:
            found[bisect_right(starts, position) - 1].add(identifier)
        return self._owners.split(found)


def _database(hyperscan: Any, literals: list[tuple[str, bool]]) -> Any:
    """Return the compiled database; compiling takes a quarter of a second, reading it back a millisecond."""
    seed = "\n".join([f"{caseless}{text}" for text, caseless in literals])
    entry = cache.name("hyperscan", hyperscan.__version__, seed)
    data = cache.read(entry)
    if data is not None:
        try:
            database = hyperscan.loadb(data, mode=hyperscan.HS_MODE_BLOCK)
            database.scratch = hyperscan.Scratch(database)
            return database
        except Exception:  # a damaged entry or one of another build: the library's own errors vary
            database = None
    database = hyperscan.Database()
    database.compile(
        expressions=[_escaped(text) for text, _ in literals],
        ids=list(range(len(literals))),
        elements=len(literals),
        flags=[(hyperscan.HS_FLAG_CASELESS if caseless else 0) for _, caseless in literals],
    )
    cache.write(entry, hyperscan.dumpb(database))
    return database


def _escaped(literal: str) -> bytes:
    """Return the literal as a pattern: every byte in hex."""
    return b"\\x" + literal.encode("utf-8").hex(" ").encode().replace(b" ", b"\\x")


def _starts(lengths: Iterable[int]) -> list[int]:
    starts: list[int] = []
    position = 0
    for length in lengths:
        starts.append(position)
        position += length + 1
    return starts


def make_prefilter(
    signatures: Iterable[Signature], further: Iterable[str] = (), formats: Mapping[str, Iterable[str]] = NO_FORMATS
) -> Prefilter:
    """Return the fastest prefilter that this machine has; ``formats``: literals by the format's id."""
    known, further = list(signatures), tuple(further)
    if os.environ.get(NO_HYPERSCAN) != "1":
        try:
            return HyperscanPrefilter(known, further, formats)
        except ImportError:
            pass
    return LiteralPrefilter(known, further, formats)
