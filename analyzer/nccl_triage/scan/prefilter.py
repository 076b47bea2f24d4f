"""Find the lines that contain a literal of some signature, many literals at once.

With the ``hyperscan`` wheel (Vectorscan inside) the whole batch is scanned in one call; without it each literal is
searched with ``str.find``, which is slower and finds the same. Both return, for each line of the batch that holds a
literal, what its literals make of it: the signatures whose patterns are worth running (none, when it only holds a
literal that opens a block for a stateful parser) and the formats of curves. Formats make no line a candidate for rules.
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
#: Sets of literals whose kinds are remembered.
_MAX_SETS = 10_000
NO_FORMATS: Mapping[str, Iterable[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What the literals of a line tell; lines with the same literals share one object.

    ``signatures`` is None for a line that is no candidate for rules, ``formats`` for one that no format can read.
    """

    signatures: tuple[Signature, ...] | None
    formats: tuple[str, ...] | None


class Prefilter(Protocol):
    """What the scanner needs: what the lines of a batch are."""

    def kinds(self, lines: Sequence[str]) -> dict[int, Kind]:
        """Return line index -> what its literals tell; no entry for a line without literals."""
        ...


def candidates(prefilter: Prefilter, lines: Sequence[str]) -> dict[int, tuple[Signature, ...]]:
    """Return line index -> signatures whose literals the line contains; no entry for a line without literals."""
    found = prefilter.kinds(lines).items()
    return {index: kind.signatures for index, kind in found if kind.signatures is not None}


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
    """Turns the literals found in lines into what they are literals of; few sets of literals make up nearly all lines."""

    def __init__(self, literals: Iterable[_Literal]) -> None:
        self._literals = list(literals)
        self._kinds: dict[frozenset[int], Kind] = {}

    def kinds(self, found: Mapping[int, set[int]]) -> dict[int, Kind]:
        """Return the kinds of lines by the numbers of their literals."""
        known = self._kinds
        made: dict[int, Kind] = {}
        for index, numbers in found.items():
            key = frozenset(numbers)
            kind = known.get(key)
            if kind is None:
                kind = self._kind(key)
                if len(known) < _MAX_SETS:
                    known[key] = kind
            made[index] = kind
        return made

    def _kind(self, numbers: Iterable[int]) -> Kind:
        literals = [self._literals[number] for number in numbers]
        owners = {signature.id: signature for literal in literals for signature in literal.signatures}
        formats = {name for literal in literals for name in literal.formats}
        candidate = bool(owners) or any(literal.further for literal in literals)
        return Kind(
            tuple(owners[name] for name in sorted(owners)) if candidate else None,
            tuple(sorted(formats)) if formats else None,
        )


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

    def kinds(self, lines: Sequence[str]) -> dict[int, Kind]:
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
        return self._owners.kinds(found)


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

    def kinds(self, lines: Sequence[str]) -> dict[int, Kind]:
        """See ``Prefilter``."""
        encoded = [line.encode("utf-8", "surrogatepass") for line in lines]
        hits: list[tuple[int, int]] = []

        def on_match(identifier: int, start: int, end: int, flags: int, context: object) -> None:
            hits.append((end - 1, identifier))

        self._database.scan(b"\n".join(encoded), match_event_handler=on_match)
        if not hits:
            return {}
        starts = _starts(len(line) for line in encoded)
        found: dict[int, set[int]] = defaultdict(set)
        for position, identifier in hits:
            found[bisect_right(starts, position) - 1].add(identifier)
        return self._owners.kinds(found)


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
