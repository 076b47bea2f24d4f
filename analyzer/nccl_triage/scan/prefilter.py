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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from nccl_triage import byte_search
from nccl_triage.engine.schema import Signature
from nccl_triage.ingest.decode import OWN_NAME
from nccl_triage.scan import database, records

#: Set to 1 to use the slow matcher although hyperscan is installed (tests compare both).
NO_HYPERSCAN = "NCCL_TRIAGE_NO_HYPERSCAN"
#: Sets of literals whose kinds are remembered.
_MAX_SETS = 10_000
#: Characters of a literal that costs next to nothing beside others; shorter ones stop the search at many words.
_LONG = 8
#: Stand for the beginnings of JSON records, and for the name in our own verdicts, among the numbers of literals.
_RECORD, _VERDICT = 1 << 20, 1 << 21
NO_FORMATS: Mapping[str, Iterable[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class LineKind:
    """What the literals of a line tell; lines with the same literals share one object.

    ``signatures`` is None for a line that is no candidate for rules, ``formats`` for one that no format can read.
    """

    signatures: tuple[Signature, ...] | None
    formats: tuple[str, ...] | None
    #: Whether no such line may be missed: it may tell of a fault or a consequence, or open a block.
    urgent: bool = True
    #: Whether all that is known of it is that it sounds like trouble.
    sounds: bool = False


class Sweep(NamedTuple):
    """Where literals end in a block of lines.

    ``ends`` are those of faults, consequences and of what opens a block, all of them, in order. ``firsts`` tells of each
    other literal (context, progress, numbers) that occurs, by its number, where it ends first. With ``records`` a line
    begins a JSON record, inside of which literals may be hidden (``scan.records``). With ``verdicts`` some may be our own.
    """

    ends: list[int]
    firsts: dict[int, int]
    records: bool
    verdicts: bool


#: Looks through a block of whole lines for what must not be missed, without taking it apart.
Sweeper = Callable[[bytes], Sweep]


class Prefilter(Protocol):
    """What the scanner needs: what the lines of a batch are."""

    def kinds(self, lines: Sequence[str]) -> dict[int, LineKind]:
        """Return line index -> what its literals tell; no entry for a line without literals."""
        ...

    @property
    def texts(self) -> tuple[str, ...]:
        """The literals, by their numbers."""
        ...

    def sweeper(self, quick: bool = False) -> Sweeper:
        """Return what looks for all literals; or what is twice as ``quick``, and tells of fewer in ``firsts``.

        Those are long, looked for as they are, and of no numbers for curves.
        """
        ...

    def ends(self, data: bytes, literals: Iterable[int]) -> list[list[int]]:
        """Return where each of some literals ends in a block, once a line."""
        ...

    def of_numbers(self, literals: Iterable[int]) -> list[int]:
        """Return those of some literals that lines with numbers for curves hold."""
        ...


def candidates(prefilter: Prefilter, lines: Sequence[str]) -> dict[int, tuple[Signature, ...]]:
    """Return line index -> signatures whose literals the line contains; no entry for a line without literals."""
    found = prefilter.kinds(lines).items()
    return {index: kind.signatures for index, kind in found if kind.signatures is not None}


@dataclass(slots=True)
class _Literal:
    """Whose literal a text is: of signatures, of formats, of the scanner's parsers (``further``).

    A ``word`` of these only sounds like trouble.
    """

    signatures: list[Signature] = field(default_factory=list)
    formats: list[str] = field(default_factory=list)
    further: bool = False
    word: bool = False


def _by_literal(
    signatures: Iterable[Signature],
    further: Iterable[str],
    formats: Mapping[str, Iterable[str]],
    words: Collection[str],
) -> dict[tuple[str, bool], _Literal]:
    table = {(text, False): _Literal(further=True, word=text in words) for text in (*further, *words)}
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


class _Literals:
    """What both prefilters look for, and what lines are by the literals found in them.

    Few sets of literals make up nearly all lines.
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
        #: Whether no line that holds the literal may be missed; of the others a sample will do.
        self._urgent = [
            one.further or any(owner.role in ("root", "cascade") for owner in one.signatures) for one in self._owners
        ]
        self.texts = tuple(text for text, _ in table)
        self._kinds: dict[frozenset[int], LineKind] = {}

    @cached_property
    def _swept(self) -> list[int]:
        """The literals that a sweep of a long log looks for: wherever one of the others stands, so does one of these."""
        texts = self._texts
        starts = _starts(len(text.encode()) for text, _ in texts)
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

    def of_numbers(self, literals: Iterable[int]) -> list[int]:
        """See ``Prefilter``."""
        return [number for number in literals if self._owners[number].formats]

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


class LiteralPrefilter(_Literals):
    """The fallback: one ``find`` loop per literal over the joined batch."""

    def kinds(self, lines: Sequence[str]) -> dict[int, LineKind]:
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
        wrapped = data.startswith(records.FIRST_BYTES) or any(start in data for start in records.NEXT_BYTES)
        return Sweep(
            ends, {number: end for number, end in firsts.items() if not self._urgent[number]}, wrapped, OWN_NAME in data
        )


class HyperscanPrefilter(_Literals):
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
        self._database = database.compiled(hyperscan, self._texts)
        self._sweepers: dict[bool, Sweeper] = {}  # needed for long logs only

    def kinds(self, lines: Sequence[str]) -> dict[int, LineKind]:
        """See ``Prefilter``."""
        encoded = [line.encode("utf-8", "surrogatepass") for line in lines]
        hits = self._found(b"\n".join(encoded))
        if not hits:
            return {}
        starts = _starts(len(line) for line in encoded)
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
            wrapped = firsts.pop(_RECORD, None) is not None or data.startswith(records.FIRST_BYTES)
            return Sweep(ends, firsts, wrapped, firsts.pop(_VERDICT, None) is not None)

        return sweep

    def _compiled(self, numbers: Sequence[int]) -> Any:
        """Return the database of some literals, and of what else a sweep tells."""
        further = [(start, _RECORD) for start in records.NEXT_BYTES] + [(OWN_NAME, _VERDICT)]
        literals = [*(self._texts[number] for number in numbers), *((text.decode(), False) for text, _ in further)]
        once = [*(not self._urgent[number] for number in numbers), *(True for _ in further)]
        return database.compiled(self._hyperscan, literals, [*numbers, *(number for _, number in further)], once)


def _ends(data: bytes, literal: bytes) -> list[int]:
    """Return where a literal ends first in each line that holds it."""
    ends: list[int] = []
    at = byte_search.find(data, literal)
    while at >= 0:
        ends.append(at + len(literal))
        at = data.find(b"\n", at)
        at = byte_search.find(data, literal, at) if at >= 0 else -1
    return ends


def _starts(lengths: Iterable[int]) -> list[int]:
    starts: list[int] = []
    position = 0
    for length in lengths:
        starts.append(position)
        position += length + 1
    return starts


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
