"""Find the lines that contain a literal of some signature, many literals at once.

With the ``hyperscan`` wheel (Vectorscan inside) the whole batch is scanned in one call; without it each literal is
searched with ``str.find``, which is slower and finds the same. Both return, for each line of the batch, the
signatures whose patterns are worth running; a line that only holds a further literal (one that opens a block for a
stateful parser) has none, but is returned.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from nccl_triage.engine import cache
from nccl_triage.engine.schema import Signature

#: Set to 1 to use the slow matcher although hyperscan is installed (tests compare both).
NO_HYPERSCAN = "NCCL_TRIAGE_NO_HYPERSCAN"


class Prefilter(Protocol):
    """What the scanner needs: candidates by line of a batch."""

    def candidates(self, lines: Sequence[str]) -> dict[int, list[Signature]]:
        """Return line index -> signatures whose literals the line contains; no entry for a line without literals."""
        ...


def _by_literal(signatures: Iterable[Signature], further: Iterable[str]) -> dict[tuple[str, bool], list[Signature]]:
    table: dict[tuple[str, bool], list[Signature]] = defaultdict(list, {(text, False): [] for text in further})
    for signature in signatures:
        if signature.anchors is None:
            raise ValueError(f"signature {signature.id} has no anchors")
        for text in signature.anchors.texts:
            table[(text, signature.anchors.caseless)].append(signature)
    return dict(table)


class LiteralPrefilter:
    """The fallback: one ``find`` loop per literal over the joined batch."""

    def __init__(self, signatures: Iterable[Signature], further: Iterable[str] = ()) -> None:
        self._table = _by_literal(signatures, further)

    def candidates(self, lines: Sequence[str]) -> dict[int, list[Signature]]:
        """See ``Prefilter``."""
        text = "\n".join(lines)
        lowered = "\n".join(line.lower() for line in lines)
        starts = _starts(len(line) for line in lines)
        lowered_starts = _starts(len(line.lower()) for line in lines)
        found: dict[int, set[int]] = defaultdict(set)
        by_id: dict[int, Signature] = {}
        for (literal, caseless), signatures in self._table.items():
            haystack, offsets = (lowered, lowered_starts) if caseless else (text, starts)
            position = haystack.find(literal)
            while position >= 0:
                index = bisect_right(offsets, position) - 1
                owners = found[index]
                for signature in signatures:
                    owners.add(id(signature))
                    by_id[id(signature)] = signature
                end = offsets[index + 1] if index + 1 < len(offsets) else len(haystack)
                position = haystack.find(literal, end)
        return {index: _ordered(by_id[i] for i in ids) for index, ids in found.items()}


class HyperscanPrefilter:
    """All literals in one Hyperscan database, block mode."""

    def __init__(self, signatures: Iterable[Signature], further: Iterable[str] = ()) -> None:
        import hyperscan

        table = _by_literal(signatures, further)
        self._owners = list(table.values())
        expressions = [_escaped(literal) for literal, _ in table]
        flags = [(hyperscan.HS_FLAG_CASELESS if caseless else 0) for _, caseless in table]
        self._database = _database(hyperscan, expressions, flags)

    def candidates(self, lines: Sequence[str]) -> dict[int, list[Signature]]:
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
        result: dict[int, list[Signature]] = {}
        for index, identifiers in found.items():
            owners = {id(s): s for i in identifiers for s in self._owners[i]}
            result[index] = _ordered(owners.values())
        return result


def _database(hyperscan: Any, expressions: list[bytes], flags: list[int]) -> Any:
    """Return the compiled database; compiling takes a quarter of a second, reading it back a millisecond."""
    entry = cache.name("hyperscan", hyperscan.__version__, repr(expressions), repr(flags))
    data = cache.read(entry)
    if data is not None:
        try:
            database = hyperscan.loadb(data, mode=hyperscan.HS_MODE_BLOCK)
            database.scratch = hyperscan.Scratch(database)
            return database
        except Exception:  # a damaged entry or one of another build: the library's own errors vary
            database = None
    database = hyperscan.Database()
    database.compile(expressions=expressions, ids=list(range(len(expressions))), elements=len(expressions), flags=flags)
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


def _ordered(signatures: Iterable[Signature]) -> list[Signature]:
    return sorted(signatures, key=lambda signature: signature.id)


def make_prefilter(signatures: Iterable[Signature], further: Iterable[str] = ()) -> Prefilter:
    """Return the fastest prefilter that this machine has."""
    known, further = list(signatures), tuple(further)
    if os.environ.get(NO_HYPERSCAN) != "1":
        try:
            return HyperscanPrefilter(known, further)
        except ImportError:
            pass
    return LiteralPrefilter(known, further)
