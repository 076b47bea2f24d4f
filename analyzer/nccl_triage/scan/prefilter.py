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
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from nccl_triage import byte_search
from nccl_triage.engine import cache
from nccl_triage.engine.schema import Signature
from nccl_triage.ingest.decode import OWN_NAME
from nccl_triage.scan.literals import (
    NEXT_RECORD,
    NO_FORMATS,
    RECORD_BYTES,
    LineKind,
    Literals,
    Sweep,
    Sweeper,
    line_starts,
)

#: Set to 1 to use the slow matcher although hyperscan is installed (tests compare both).
NO_HYPERSCAN = "NCCL_TRIAGE_NO_HYPERSCAN"
#: Numbers that stand for the beginnings of JSON records and for the name in our own verdicts, among those of literals.
_RECORD, _VERDICT = 1 << 20, 1 << 21


class Prefilter(Protocol):
    """What the scan asks: which lines of a batch or block hold literals, and which kinds of lines they are."""

    def kinds(self, lines: Sequence[str]) -> dict[int, LineKind]:
        """Return line index -> what its literals tell; no entry for a line without literals."""
        ...

    @property
    def texts(self) -> tuple[str, ...]:
        """The literals, by their numbers."""
        ...

    @property
    def with_digits(self) -> tuple[bytes, ...]:
        """The literals that hold digits, folded (``digit_folding.folded_literals``)."""
        ...

    def sweeper(self, quick: bool = False) -> Sweeper:
        """Return what looks for all literals in a block; a ``quick`` one is twice as fast and tells of fewer in ``firsts``.

        Those are long, case-sensitive, and belong to no curve format.
        """
        ...

    def ends(self, data: bytes, literals: Iterable[int]) -> list[list[int]]:
        """Return where each of some literals ends in a block, once a line."""
        ...

    def lasts(self, data: bytes, literals: Iterable[int]) -> list[int]:
        """Return where each of some literals that a block holds ends last."""
        ...

    def of_numbers(self, literals: Iterable[int]) -> list[int]:
        """Return those of some literals that belong to curve formats."""
        ...

    def of_progress(self, literals: Iterable[int]) -> list[int]:
        """Return those of some literals that belong to curve formats or to signatures of progress."""
        ...


def candidates(prefilter: Prefilter, lines: Sequence[str]) -> dict[int, tuple[Signature, ...]]:
    """Return line index -> signatures whose literals the line contains; no entry for a line without literals."""
    found = prefilter.kinds(lines).items()
    return {index: kind.signatures for index, kind in found if kind.signatures is not None}


class LiteralPrefilter(Literals):
    """The fallback: one ``find`` loop per literal over the joined batch."""

    def kinds(self, lines: Sequence[str]) -> dict[int, LineKind]:
        """See ``Prefilter``."""
        text = "\n".join(lines)
        lowered = "\n".join(line.lower() for line in lines)
        starts = line_starts(len(line) for line in lines)
        lowered_starts = line_starts(len(line.lower()) for line in lines)
        found: dict[int, set[int]] = defaultdict(set)
        for number, (literal, caseless) in enumerate(self._texts):
            haystack, offsets = (lowered, lowered_starts) if caseless else (text, starts)
            position = haystack.find(literal)
            while position >= 0:
                index = bisect_right(offsets, position) - 1
                found[index].add(number)
                end = offsets[index + 1] if index + 1 < len(offsets) else len(haystack)
                position = haystack.find(literal, end)
        return self._kinds_of(found)

    def sweeper(self, quick: bool = False) -> Sweeper:
        """See ``Prefilter``."""
        sought = self._sought(quick)
        return lambda data: self._sweep(data, sought)

    def _sweep(self, data: bytes, sought: Iterable[int]) -> Sweep:
        lowered = data.lower()
        firsts: dict[int, int] = {}
        for number in sought:
            literal, caseless = self._texts[number]
            needle = literal.encode()
            position = byte_search.find(lowered if caseless else data, needle)
            if position >= 0:
                firsts[number] = position + len(needle)
        all_wanted = [number for number in firsts if self._urgent[number]]
        ends = sorted(end for found in self.ends(data, all_wanted) for end in found)
        wrapped = data.startswith(RECORD_BYTES) or any(start in data for start in NEXT_RECORD)
        return Sweep(
            ends, {number: end for number, end in firsts.items() if not self._urgent[number]}, wrapped, OWN_NAME in data
        )


class HyperscanPrefilter(Literals):
    """All literals in one Hyperscan database, block mode."""

    def __init__(
        self,
        signatures: Iterable[Signature],
        further: Iterable[str] = (),
        formats: Mapping[str, Iterable[str]] = NO_FORMATS,
        words: Collection[str] = (),
    ) -> None:
        import hyperscan

        super().__init__(signatures, further, formats, words)
        self._hyperscan = hyperscan
        self._database = compiled(hyperscan, self._texts)
        self._sweepers: dict[bool, Sweeper] = {}  # needed for long logs only

    def kinds(self, lines: Sequence[str]) -> dict[int, LineKind]:
        """See ``Prefilter``."""
        encoded = [line.encode("utf-8", "surrogatepass") for line in lines]
        hits = self._found(b"\n".join(encoded))
        if not hits:
            return {}
        starts = line_starts(len(line) for line in encoded)
        found: dict[int, set[int]] = defaultdict(set)
        for identifier, end in hits:
            found[bisect_right(starts, end - 1) - 1].add(identifier)
        return self._kinds_of(found)

    def _found(self, data: bytes) -> list[tuple[int, int]]:
        hits: list[tuple[int, int]] = []

        def on_match(identifier: int, start: int, end: int, flags: int, context: object) -> None:
            hits.append((identifier, end))

        self._database.scan(data, match_event_handler=on_match)
        return hits

    def sweeper(self, quick: bool = False) -> Sweeper:
        """See ``Prefilter``."""
        sweeper = self._sweepers.get(quick)
        if sweeper is None:
            sweeper = self._sweepers[quick] = self._sweeper(self._sought(quick))
        return sweeper

    def _sweeper(self, numbers: Sequence[int]) -> Sweeper:
        database = self._compiled(numbers)
        every = self._urgent

        def sweep(data: bytes) -> Sweep:
            ends: list[int] = []
            firsts: dict[int, int] = {}

            def on_match(identifier: int, start: int, end: int, flags: int, context: object) -> None:
                if identifier < _RECORD and every[identifier]:
                    ends.append(end)
                else:
                    firsts[identifier] = end

            database.scan(data, match_event_handler=on_match)
            wrapped = firsts.pop(_RECORD, None) is not None or data.startswith(RECORD_BYTES)
            return Sweep(ends, firsts, wrapped, firsts.pop(_VERDICT, None) is not None)

        return sweep

    def _compiled(self, numbers: Sequence[int]) -> Any:
        """Return the database of some literals, and of what else a sweep tells."""
        further = [(start, _RECORD) for start in NEXT_RECORD] + [(OWN_NAME, _VERDICT)]
        literals = [*(self._texts[number] for number in numbers), *((text.decode(), False) for text, _ in further)]
        once = [*(not self._urgent[number] for number in numbers), *(True for _ in further)]
        return compiled(self._hyperscan, literals, [*numbers, *(number for _, number in further)], once)


def make_prefilter(
    signatures: Iterable[Signature],
    further: Iterable[str] = (),
    formats: Mapping[str, Iterable[str]] = NO_FORMATS,
    words: Collection[str] = (),
) -> Prefilter:
    """Return the fastest prefilter that this machine has; ``formats``: literals by the format's id.

    ``further`` are literals of parsers, ``words`` those that only sound like trouble.
    """
    known, further = list(signatures), tuple(further)
    if os.environ.get(NO_HYPERSCAN) != "1":
        try:
            return HyperscanPrefilter(known, further, formats, words)
        except ImportError:
            pass
    return LiteralPrefilter(known, further, formats, words)


def compiled(
    hyperscan: Any,
    literals: list[tuple[str, bool]],
    numbers: Sequence[int] | None = None,
    once: Sequence[bool] | None = None,
) -> Any:
    """Return the compiled database; compiling takes some hundredths of a second, reading it back a millisecond.

    Literals are reported by their ``numbers`` (their places, without); one that is marked in ``once`` is reported where
    it ends first, and not again.
    """
    single = once or [False] * len(literals)
    ids = list(numbers or range(len(literals)))
    told = zip(literals, ids, single, strict=True)
    seed = "\n".join([f"{caseless:d}{one:d}{number} {text}" for (text, caseless), number, one in told])
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
        ids=ids,
        elements=len(literals),
        flags=[
            (hyperscan.HS_FLAG_CASELESS if caseless else 0) | (hyperscan.HS_FLAG_SINGLEMATCH if one else 0)
            for (_, caseless), one in zip(literals, single, strict=True)
        ],
    )
    cache.write(entry, hyperscan.dumpb(database))
    return database


def _escaped(literal: str) -> bytes:
    """Return the literal as a pattern: every byte in hex."""
    return b"\\x" + literal.encode("utf-8").hex(" ").encode().replace(b" ", b"\\x")
