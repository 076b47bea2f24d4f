"""What one source taught about the shapes of lines, kept for the next source with the same prefixes.

A job of 512 ranks writes 512 logs of the same lines. Which numbers of a line matter and where its fields stand depends on
the rules and on the prefixes of the source (``WrapperProfile``), not on the source itself: the first source learns it by
trying, and the others take it over. Nothing of what the lines said is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from operator import contains
from typing import NamedTuple

from nccl_triage.engine.schema import Signature
from nccl_triage.parsers.wrappers import FOLDED, WrapperProfile, may_name_speaker
from nccl_triage.scan.digit_folding import Pick
from nccl_triage.scan.interest import Interest
from nccl_triage.scan.learned_fields import FieldPositions
from nccl_triage.scan.literals import LineKind

#: Shapes remembered for sources with the same prefixes, and profiles of prefixes.
MAX_SHAPES, MAX_PROFILES = 8000, 6


#: Lines, of all parts of the first ones, that may tell the prefixes of a source, and sources that must have shown so before.
FEW, ENOUGH = 24, 2
#: Characters of a line that tell how it begins, and different beginnings of a source that are remembered.
BEGINNING, MAX_BEGINNINGS = 64, 40
_NO_DIGITS = str.maketrans("", "", "0123456789")
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

    def note(self, numbers: Sequence[bytes]) -> None:
        """Take the lengths of the numbers of a line that was tried."""
        for known, number in zip(self.lengths, numbers, strict=True):
            known.add(len(number))

    def cover(self, numbers: Sequence[bytes]) -> bool:
        """Tell whether each number of a line has a length that was tried."""
        return not self.broken and all(map(contains, self.lengths, map(len, numbers)))


@dataclass(slots=True)
class LearnedShapes:
    """The learned shapes of sources with the same prefixes."""

    #: By folded lines: what cuts out the digits of their literals.
    literals: dict[bytes, Pick | None] = field(default_factory=dict)
    #: By folded lines and the digits of their literals.
    shapes: dict[tuple[bytes, Hashable], LearnedShape] = field(default_factory=dict)
    #: By what stands between the numbers of lines, of which no literal holds any.
    lengths: dict[Text, LearnedLengths] = field(default_factory=dict)
    #: What is worth following in the middle of a source, and how many sources were read, by their names without digits.
    interest: Interest = field(default_factory=Interest)
    sources: Counter[str] = field(default_factory=Counter)

    def keep(self, folded: bytes, digits: Hashable, literal: Pick | None, learned: LearnedShape) -> None:
        """Remember a shape; when there are too many, all are learned again."""
        if len(self.shapes) >= MAX_SHAPES:
            self.literals.clear()
            self.shapes.clear()
            self.lengths.clear()
        self.literals[folded] = literal
        self.shapes[folded, digits] = learned


def skeleton(path: str) -> str:
    """Return the name of a file without its digits: the logs of ranks differ in nothing else."""
    return path.rpartition("/")[2].translate(_NO_DIGITS)


def _beginnings(lines: Sequence[str]) -> frozenset[str]:
    """Return how lines begin, their digits folded."""
    return frozenset(line[:BEGINNING].translate(FOLDED) for line in lines)


def _remember(known: dict[frozenset[str], WrapperProfile], beginnings: frozenset[str], profile: WrapperProfile) -> None:
    """Remember the prefixes of lines that begin so, where no digit tells who speaks."""
    if len(beginnings) <= MAX_BEGINNINGS and not any(map(may_name_speaker, beginnings)):
        if len(known) >= MAX_PROFILES * MAX_BEGINNINGS:
            known.clear()
        known[beginnings] = profile


class LearnedShapesByProfile:
    """The learned shapes by the prefixes of their sources."""

    def __init__(self) -> None:
        self._known: list[tuple[WrapperProfile, LearnedShapes]] = []
        #: Sources in a row of which a few lines told the same as all that were looked at.
        self._told_by_few = 0
        #: How the first lines of a source begin, their digits folded -> its prefixes, where no digit tells who speaks.
        self._by_beginnings: dict[frozenset[str], WrapperProfile] = {}
        #: The same of a few of the first lines.
        self._few_by_beginnings: dict[frozenset[str], WrapperProfile] = {}
        self._few: tuple[Sequence[str], WrapperProfile] = ((), WrapperProfile())

    def sniff(self, first: Sequence[str], path: str = "") -> WrapperProfile:
        """Return the prefixes of a source by its first lines, by a few of them where that did for the sources before.

        They must then tell of prefixes that an earlier source had: files of one job are written alike.
        """
        profile = self._sniff(first)
        self.of(profile).sources[skeleton(path)] += 1
        return profile

    def _sniff(self, first: Sequence[str]) -> WrapperProfile:
        beginnings = _beginnings(first)
        known = self._by_beginnings.get(beginnings)
        if known is not None:
            if self._told_by_few < ENOUGH and len(first) > FEW:
                self._told_by_few = self._told_by_few + 1 if self._by_few(first) == known else 0
            return known
        profile = self._sniff_lines(first)
        _remember(self._by_beginnings, beginnings, profile)
        return profile

    def _sniff_lines(self, first: Sequence[str]) -> WrapperProfile:
        if len(first) <= FEW:
            return WrapperProfile.sniff(first)
        few = self._by_few(first)
        if self._told_by_few >= ENOUGH and any(few == known for known, _ in self._known):
            return few
        profile = WrapperProfile.sniff(first)
        self._told_by_few = self._told_by_few + 1 if few == profile else 0
        return profile

    def _by_few(self, first: Sequence[str]) -> WrapperProfile:
        """Return the prefixes that some of the first lines tell; remembered, as it is asked twice of a source."""
        few = first[:: len(first) // FEW]
        if few != self._few[0]:
            beginnings = _beginnings(few)
            profile = self._few_by_beginnings.get(beginnings)
            if profile is None:
                profile = WrapperProfile.sniff(few)
                _remember(self._few_by_beginnings, beginnings, profile)
            self._few = few, profile
        return self._few[1]

    def alike(self, first: Sequence[str]) -> LearnedShapes | None:
        """Return what sources with the same prefixes taught, if a few of the first lines do to tell these; else None."""
        if self._told_by_few < ENOUGH or len(first) <= FEW:
            return None
        few = self._by_few(first)
        return next((learned for known, learned in self._known if few == known), None)

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
