"""What one source taught about the shapes of lines, kept for the next source with the same prefixes.

A job of 512 ranks writes 512 logs of the same lines. Which numbers of a line matter and where its fields stand depends on
the rules and on the prefixes of the source (``WrapperProfile``), not on the source itself: the first source learns it by
trying, and the others take it over. Nothing of what the lines said is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, contains
from typing import NamedTuple

from nccl_triage.engine.schema import Signature
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import Bucket, Observations
from nccl_triage.parsers.wrappers import FOLDED, PrefixReader, WrapperProfile
from nccl_triage.scan.digit_folding import Pick
from nccl_triage.scan.interest import Interest
from nccl_triage.scan.learned_fields import FieldPositions, PositionsByNumber
from nccl_triage.scan.literals import LineKind

#: Shapes remembered for sources with the same prefixes, and profiles of prefixes.
MAX_SHAPES, MAX_PROFILES = 8000, 6


#: Lines, of all parts of the first ones, that may tell the prefixes of a source, and sources that must have shown so before.
FEW, ENOUGH = 24, 2
#: Characters of a line that tell how it begins, and different beginnings of a source that are remembered.
BEGINNING, MAX_BEGINNINGS = 64, 40
#: What differs in the names of files of one job: numbers, and what a random name is made of.
_VARIES = lazily(r"[0-9a-f]{8,}|[0-9]+")
#: Names of sources that are remembered.
MAX_NAMES = 500
#: What tells of a line's context which process printed it.
_VOICE = attrgetter("rank", "local_rank", "host", "address", "place", "pid", "writer", "job")
#: What stands between the numbers of a line.
Text = tuple[bytes, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LearnedNumbers:
    """What was learned about the numbers of lines that differ in nothing else."""

    #: Which of their numbers, in order, change what a line adds.
    matter: tuple[int, ...]
    #: The signatures whose patterns ask for particular digits: they are tried on every line.
    sensitive: tuple[Signature, ...]
    formats: tuple[str, ...] | None
    #: Whether a line that none of the sensitive signatures matches is one that no signature knows.
    bare: bool


class LearnedShape(NamedTuple):
    """What was learned about a shape; without ``numbers`` its lines must all be read in full."""

    kind: LineKind
    numbers: LearnedNumbers | None
    values: Pick | None = None
    positions: FieldPositions | None = None


@dataclass(slots=True)
class LearnedLengths:
    """Lines that differ in their numbers and in the lengths of these: which lengths each number was tried with.

    What a line adds was found not to depend on them. That they matter together where each alone does not is left out of
    account, or a dozen numbers of a few lengths each would have to be tried in thousands of ways.
    """

    kind: LineKind
    numbers: LearnedNumbers
    lengths: list[set[int]]
    #: Literals that may hold digits of such lines, folded.
    literals: tuple[bytes, ...]
    #: Whether lines were found that other lengths make different.
    broken: bool = False
    #: Where their fields stand, once that was learned, and how many lines were read before.
    positions: PositionsByNumber | None = None
    reads: int = 0

    def note(self, numbers: Sequence[bytes]) -> None:
        """Take the lengths of the numbers of a line that was tried."""
        for known, number in zip(self.lengths, numbers, strict=True):
            known.add(len(number))

    def cover(self, numbers: Sequence[bytes]) -> bool:
        """Tell whether each number of a line has a length that was tried."""
        return not self.broken and all(map(contains, self.lengths, map(len, numbers)))


def _fails(buckets: Iterable[Bucket]) -> bool:
    """Tell whether the events of a signature are failures; they all have its role."""
    return any(event.is_failure for event in next(iter(buckets)).events())


@dataclass(slots=True)
class AlikeSources:
    """What sources taught whose prefixes are the same and whose names differ in numbers only."""

    #: How many were begun, and whether one of them held the lines of several processes.
    number: int = 0
    several: bool = False
    #: Whether a counter advanced in the last lines of one of them, and the signatures of faults in them.
    counts: bool = False
    faults: set[str] = field(default_factory=set)
    #: What is worth following in the middle of a source.
    interest: Interest = field(default_factory=Interest)

    def learn(self, found: Observations, skimmed: bool) -> None:
        """Take what was found in one of them, read in full or not."""
        self.faults.update(name for name, by_key in found.buckets.items() if _fails(by_key.values()))
        if not (self.several or skimmed):
            said = zip(*(_VOICE(event.context) for event in found.kept()), strict=True)
            self.several = any(len(set(values) - {None}) > 1 for values in said)


@dataclass(slots=True)
class LearnedShapes:
    """The learned shapes of sources with the same prefixes."""

    #: By folded lines: what cuts out the digits of their literals.
    literals: dict[bytes, Pick | None] = field(default_factory=dict)
    #: By folded lines and the digits of their literals.
    shapes: dict[tuple[bytes, Hashable], LearnedShape] = field(default_factory=dict)
    #: By what stands between the numbers of lines, of which no literal holds any.
    lengths: dict[Text, LearnedLengths] = field(default_factory=dict)
    #: By folded lines: those of which they differ only in the lengths of numbers, and what cuts out the numbers that matter.
    covered: dict[bytes, tuple[LearnedLengths, Pick | None]] = field(default_factory=dict)
    #: By what stands between the numbers of lines, and their kind: how many were read in full before any was tried.
    seen: dict[tuple[Text, LineKind], int] = field(default_factory=dict)
    #: By the names of sources without their numbers.
    sources: dict[str, AlikeSources] = field(default_factory=dict)

    def keep(self, folded: bytes, digits: Hashable, literal: Pick | None, learned: LearnedShape) -> None:
        """Remember a shape; when there are too many, all are learned again."""
        if len(self.shapes) >= MAX_SHAPES:
            self.literals.clear()
            self.shapes.clear()
            self.lengths.clear()
            self.covered.clear()
        self.literals[folded] = literal
        self.shapes[folded, digits] = learned

    def cover(self, folded: bytes, lengths: LearnedLengths, values: Pick | None) -> None:
        """Remember that a folded line differs from known ones only in the lengths of its numbers."""
        if len(self.covered) >= MAX_SHAPES:
            self.covered.clear()
        self.covered[folded] = lengths, values

    def see(self, alike: tuple[Text, LineKind]) -> int:
        """Count a line that was read in full, and return how many like it there were."""
        if len(self.seen) >= MAX_SHAPES:
            self.seen.clear()
        number = self.seen[alike] = self.seen.get(alike, 0) + 1
        return number

    def alike(self, path: str) -> AlikeSources:
        """Return what sources with such a name taught: the logs of ranks differ in their numbers only."""
        name = _VARIES.sub("", path.rpartition("/")[2])
        if len(self.sources) >= MAX_NAMES and name not in self.sources:
            self.sources.clear()
        return self.sources.setdefault(name, AlikeSources())


def _beginnings(lines: Sequence[str]) -> frozenset[str]:
    """Return how lines begin, their digits folded."""
    return frozenset(line[:BEGINNING].translate(FOLDED) for line in lines)


class _Beginnings:
    """The prefixes of sources by how their lines begin, and by who speaks in which order where the lines may tell."""

    def __init__(self, prefixes: PrefixReader) -> None:
        self._speaker_of = prefixes.speaker_of
        self._known: dict[frozenset[str], WrapperProfile] = {}
        self._of_speakers: dict[tuple[frozenset[str], tuple[str, ...]], WrapperProfile] = {}

    def get(self, lines: Sequence[str], beginnings: frozenset[str]) -> WrapperProfile | None:
        """Return the prefixes of lines, of which the beginnings are given, if such lines were sniffed before."""
        found = self._known.get(beginnings)
        if found is None and self._of_speakers and len(lines) <= 2 * FEW:
            found = self._of_speakers.get((beginnings, tuple(map(self._speaker_of, lines))))
        return found

    def keep(self, lines: Sequence[str], beginnings: frozenset[str], profile: WrapperProfile) -> None:
        """Remember the prefixes of lines."""
        if len(beginnings) > MAX_BEGINNINGS:
            return
        for known in (self._known, self._of_speakers):
            if len(known) >= MAX_PROFILES * MAX_BEGINNINGS:
                known.clear()
        if not any(map(self._speaker_of, beginnings)):
            self._known[beginnings] = profile
        elif len(lines) <= 2 * FEW:
            self._of_speakers[beginnings, tuple(map(self._speaker_of, lines))] = profile


class LearnedShapesByProfile:
    """The learned shapes by the prefixes of their sources."""

    def __init__(self, prefixes: PrefixReader) -> None:
        self._prefixes = prefixes
        self._known: list[tuple[WrapperProfile, LearnedShapes]] = []
        #: Sources in a row of which a few lines told the same as all that were looked at.
        self._told_by_few = 0
        #: What all of the first lines of sources told, and a few of them.
        self._by_all, self._by_some = _Beginnings(prefixes), _Beginnings(prefixes)
        self._few: tuple[Sequence[str], WrapperProfile] = ((), WrapperProfile())

    def sniff(self, first: Sequence[str]) -> WrapperProfile:
        """Return the prefixes of a source by its first lines, by a few of them where that did for the sources before.

        They must then tell of prefixes that an earlier source had: files of one job are written alike.
        """
        beginnings = _beginnings(first)
        known = self._by_all.get(first, beginnings)
        if known is not None:
            if self._told_by_few < ENOUGH and len(first) > FEW:
                self._told_by_few = self._told_by_few + 1 if self._by_few(first) == known else 0
            return known
        profile = self._sniff_lines(first)
        self._by_all.keep(first, beginnings, profile)
        return profile

    def _sniff_lines(self, first: Sequence[str]) -> WrapperProfile:
        if len(first) <= FEW:
            return self._prefixes.sniff(first)
        few = self._by_few(first)
        if self._told_by_few >= ENOUGH and any(few == known for known, _ in self._known):
            return few
        profile = self._prefixes.sniff(first)
        self._told_by_few = self._told_by_few + 1 if few == profile else 0
        return profile

    def _by_few(self, first: Sequence[str]) -> WrapperProfile:
        """Return the prefixes that some of the first lines tell; remembered, as it is asked twice of a source."""
        few = first[:: -(-len(first) // FEW) or 1]
        if few != self._few[0]:
            beginnings = _beginnings(few)
            profile = self._by_some.get(few, beginnings)
            if profile is None:
                profile = self._prefixes.sniff(few)
                self._by_some.keep(few, beginnings, profile)
            self._few = few, profile
        return self._few[1]

    def known(self, first: Sequence[str]) -> WrapperProfile | None:
        """Return the prefixes of a source if an earlier one had them and a few of the first lines do to tell; else None.

        There may be no more than a few, as of lines that are redrawn.
        """
        if self._told_by_few < ENOUGH and len(first) > FEW:
            return None
        few = self._by_few(first)
        return few if any(few == known for known, _ in self._known) else None

    def of(self, profile: WrapperProfile) -> LearnedShapes:
        """Return what was learned from sources with these prefixes."""
        for known, learned in self._known:
            if known == profile:
                return learned
        if len(self._known) >= MAX_PROFILES:
            del self._known[0]
        learned = LearnedShapes()
        self._known.append((profile, learned))
        return learned
