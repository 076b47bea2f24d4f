"""Shapes of lines: a line that differs from earlier ones only where it does not matter is counted, not read.

A shape is a line, as bytes, with all digits (and what follows ``0x``) folded. After some lines of a shape were read in
full, its numbers are changed one at a time. Those whose change changes what the line would add (the rank, a field that
keeps events apart) matter; the others (times, pointers, durations) do not. Lines that agree in the numbers that matter
form a group. Once the first events of a group's buckets are kept, its lines are only counted, and the last few of them
are read at the end of the source.

Nothing is guessed about digits. Where a literal holds some (``err=110``), lines with other digits there have another
shape. Patterns in which particular digits count (``Xid 79`` against ``Xid 13``) are run on every line, and what they find
is part of the group's key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nccl_triage.engine import regex_analysis
from nccl_triage.engine.schema import Signature
from nccl_triage.observations.store import KEEP_LAST
from nccl_triage.scan import digit_folding, learned_fields
from nccl_triage.scan.digit_folding import Folder, Pick
from nccl_triage.scan.event_collector import Addition
from nccl_triage.scan.learned_fields import FieldPositions, PositionsByNumber
from nccl_triage.scan.learned_shapes import LearnedLengths, LearnedNumbers, LearnedShape, LearnedShapes, Text
from nccl_triage.scan.line_groups import Family, LineGroup, Waiting, buckets_of, first_shown, key
from nccl_triage.scan.line_parser import LineEffect, LineParser
from nccl_triage.scan.literals import LineKind
from nccl_triage.scan.prefilter import Prefilter

#: Lines of a shape that are read in full before its numbers are tried.
PATIENCE = 8
#: Lines of a learned shape read in full before the positions of its fields are learned, too.
WORTH_POSITIONS = 3
#: Shapes and groups of one source held at once. Beyond that all are dropped, and learned again.
MAX_SHAPES, MAX_GROUPS = 12_000, 32_000
#: Characters and numbers of the longest line whose shape is learned.
MAX_TEXT, MAX_NUMBERS = 2000, 48


@dataclass(slots=True, eq=False)
class Shape:
    """Lines that differ only in digits, and have as many of them; ``values`` cuts out the numbers that matter."""

    #: What the literals of its lines tell; ``silent``: they hold none.
    kind: LineKind | None = None
    silent: bool = False
    #: Lines that were read in full.
    #: ``unlearnable``: all its lines must be. ``apart``: it did not fit the family of lines with longer or shorter numbers.
    seen: int = 0
    unlearnable: bool = False
    apart: bool = False
    family: Family | None = None
    values: Pick | None = None
    #: Cuts out the digits of literals; ``variants`` are the shapes that differ in them.
    literal: Pick | None = None
    variants: dict[Hashable, Shape] = field(default_factory=dict)
    #: Where its fields stand, once that was learned, and how many lines were read before.
    positions: FieldPositions | None = None
    reads: int = 0
    #: The lines with numbers of other lengths by which it was known when its first line came.
    lengths: LearnedLengths | None = None
    #: Its key among the learned shapes.
    name: tuple[bytes, Hashable] = (b"", None)

    def know(self, kind: LineKind | None) -> None:
        """Take what the literals of its lines tell."""
        self.kind, self.silent = kind, kind is None


class GroupPlace(NamedTuple):
    """Where the group of a line belongs, and where the line's fields stand if that is known."""

    family: Family
    key: Hashable
    positions: FieldPositions | None


class Shapes:
    """The shapes of one source. They are learned with its ``parser``, which keeps no events."""

    def __init__(self, parser: LineParser, prefilter: Prefilter) -> None:
        self._parser = parser
        self._prefilter = prefilter
        self._with_digits = prefilter.with_digits
        self._shapes: dict[bytes, Shape] = {}
        self._folder = Folder()
        #: What was learned from earlier sources.
        self.learned = LearnedShapes()
        self._families: dict[LearnedNumbers, Family] = {}
        #: By lines without the length of their numbers: the first family.
        self._first: dict[tuple[Text, LineKind], Family] = {}
        self._made = self._groups = 0

    @property
    def full(self) -> bool:
        """Whether ``drain`` is due."""
        return self._made > MAX_SHAPES or self._groups > MAX_GROUPS

    def group(self, raw: bytes) -> LineGroup | None:
        """Return the group of a line (without its end), if it is made."""
        folded = self._folder.fold(raw)
        shape = self._shapes.get(folded)
        if shape is None:
            shape = self._of_other_length(raw, folded)
        elif shape.literal is not None:
            shape = shape.variants.get(shape.literal(raw))
        if shape is None or shape.family is None:
            return None
        return shape.family.groups.get(key(shape.family, shape.values, raw))

    def _known(self, raw: bytes) -> Shape | None:
        """Return the shape of a line, if it is made."""
        shape = self._shapes.get(self._folder.fold(raw))
        if shape is not None and shape.literal is not None:
            return shape.variants.get(shape.literal(raw))
        return shape

    def _of_other_length(self, raw: bytes, folded: bytes) -> Shape | None:
        """Return a new shape for a line that differs from known ones in the lengths of its numbers, if these do not matter."""
        known = self.learned.covered.get(folded)
        if known is None:
            if len(raw) > MAX_TEXT:
                return None
            if (folded, None) in self.learned.shapes:
                return self._shape(raw)
            lengths = self._lengths_that_cover(raw, folded)
            if lengths is None:
                return None
            spans = [found.span() for found in digit_folding.NUMBER.finditer(raw)] if lengths.numbers.matter else []
            known = lengths, digit_folding.pick_numbers(spans, lengths.numbers.matter)
            self.learned.cover(folded, *known)
        lengths, values = known
        if lengths.broken:
            return None
        shape = Shape(lengths.kind, family=self._family(lengths.numbers), values=values, lengths=lengths)
        shape.name = folded, None
        self._shapes[folded] = shape
        self._made += 1
        return shape

    def _lengths_that_cover(self, raw: bytes, folded: bytes) -> LearnedLengths | None:
        """Return the lines that a line differs from only in lengths of numbers that were tried."""
        text, numbers = digit_folding.parted(raw)
        lengths = self.learned.lengths.get(text)
        if lengths is None or not lengths.cover(numbers):
            return None
        literal = lengths.literals and digit_folding.literal_digits(folded, lengths.literals)
        return lengths if not literal else None

    def _note_lengths(self, shape: Shape, text: Text, numbers: Sequence[bytes]) -> None:
        """Remember the lengths of the numbers of a line that was tried, where no literal holds any of their digits."""
        folded, digits_of_literals = shape.name
        if shape.kind is None or digits_of_literals is not None or self._shapes[folded].literal is not None:
            return
        known = self.learned.lengths
        if shape.family is None:
            if text in known:
                known[text].broken = True
            return
        if text not in known:
            literals = digit_folding.possible_literals(folded, self._with_digits)
            known[text] = LearnedLengths(shape.kind, shape.family.numbers, [set() for _ in numbers], literals)
        if known[text].numbers is shape.family.numbers:
            known[text].note(numbers)

    def knows(self, raw: bytes) -> bool:
        """Tell whether there was a line of this shape."""
        return self._known(raw) is not None

    def kind(self, raw: bytes, text: str) -> LineKind | None:
        """Return what the literals of a line tell, from another line of its shape where there was one."""
        if len(raw) > MAX_TEXT:
            return self._prefilter.kinds([text]).get(0)
        shape = self._shape(raw)
        if shape.kind is None and not shape.silent:
            shape.know(self._prefilter.kinds([text]).get(0))
        return shape.kind

    def place(self, raw: bytes, kind: LineKind) -> GroupPlace | None:
        """Return where the group of a line belongs; None for a line that must be read in full."""
        if len(raw) > MAX_TEXT:
            return None
        shape = self._shape(raw)
        shape.know(kind)
        if shape.family is None and not shape.unlearnable:
            self._find_family(shape, kind, raw)
        if shape.family is None:
            return None
        shape.reads += 1
        if shape.positions is None:
            if shape.reads == WORTH_POSITIONS:
                shape.positions = self._learn_positions(shape.family, kind, raw)
                self._remember(shape)
            elif shape.reads == 1:
                shape.positions = self._positions_by_number(shape, shape.family, raw)
        return GroupPlace(shape.family, key(shape.family, shape.values, raw), shape.positions)

    def _learn_positions(self, family: Family, kind: LineKind, raw: bytes) -> FieldPositions | None:
        return learned_fields.learn(raw.decode("utf-8", "replace"), kind, family.numbers.sensitive, self._parser.parse)

    def _positions_by_number(self, shape: Shape, family: Family, raw: bytes) -> FieldPositions | None:
        """Return where fields stand in a line whose numbers have other lengths than those of lines before."""
        lengths = shape.lengths
        if lengths is None or not raw.isascii():
            return None
        edges = [edge for found in digit_folding.NUMBER.finditer(raw) for edge in found.span()]
        if lengths.positions is None:
            lengths.reads += 1
            learned = self._learn_positions(family, lengths.kind, raw) if lengths.reads == WORTH_POSITIONS else None
            if learned is not None:
                lengths.positions = PositionsByNumber(learned, edges)
            return learned
        return lengths.positions.in_line(raw.decode(), edges, lengths.kind.signatures or (), self._parser.parse)

    def _find_family(self, shape: Shape, kind: LineKind, raw: bytes) -> None:
        """Find the family of a shape: a known one, or one of its own once enough lines like this were read."""
        text, numbers = digit_folding.parted(raw)
        alike = text, kind
        family = self._first.get(alike)
        if family is None:
            known = self.learned.lengths.get(text)
            if known is not None and known.kind == kind and not known.broken:
                family = self._first[alike] = self._family(known.numbers)
        if family is not None and not shape.apart:
            self._join_family(shape, family, raw)
            shape.apart = shape.family is None
            self._note_lengths(shape, text, numbers)
        if shape.family is None:
            shape.seen += 1
            seen = self.learned.see(alike)
            if (shape.seen if shape.apart else seen) > PATIENCE:
                self._learn(shape, alike, raw)
                if shape.family is not None and self._first.get(alike) is shape.family:
                    self._note_lengths(shape, text, numbers)

    def positions(self, raw: bytes) -> FieldPositions | None:
        """Return where the fields of a line stand, if its shape has learned that."""
        shape = self._known(raw)
        if shape is None or shape.positions is not None:
            return None if shape is None else shape.positions
        return None if shape.family is None else self._positions_by_number(shape, shape.family, raw)

    def _shape(self, raw: bytes) -> Shape:
        """Return the shape of a line, a new one where there is none."""
        folded = self._folder.fold(raw)
        shape = self._shapes.get(folded)
        if shape is None:
            literals = self.learned.literals
            if folded in literals:
                literal = literals[folded]
            else:
                literal = digit_folding.literal_digits(folded, self._with_digits)
            shape = self._shapes[folded] = Shape(literal=literal, name=(folded, None))
            self._made += 1
            if literal is None:
                self._recall(shape)
        if shape.literal is not None:
            values = shape.literal(raw)
            variant = shape.variants.get(values)
            if variant is None:
                variant = shape.variants[values] = Shape(name=(folded, values))
                self._made += 1
                self._recall(variant)
            shape = variant
        return shape

    def _recall(self, shape: Shape) -> None:
        """Take over what was learned about a shape from an earlier source."""
        learnt = self.learned.shapes.get(shape.name)
        if learnt is None:
            return
        shape.know(learnt.kind)
        if learnt.numbers is None:
            shape.unlearnable = True
        else:
            shape.family, shape.values, shape.positions = self._family(learnt.numbers), learnt.values, learnt.positions

    def _remember(self, shape: Shape) -> None:
        """Keep what was learned about a shape for the next source."""
        if shape.kind is not None:
            folded, values = shape.name
            literal = self._shapes[folded].literal
            numbers = None if shape.family is None else shape.family.numbers
            self.learned.keep(folded, values, literal, LearnedShape(shape.kind, numbers, shape.values, shape.positions))

    def _family(self, numbers: LearnedNumbers) -> Family:
        """Return the family of these numbers, a new one where there is none."""
        family = self._families.get(numbers)
        if family is None:
            family = self._families[numbers] = Family(numbers)
        return family

    def keep(
        self, place: GroupPlace, parts: Iterable[Addition], signatures: Iterable[str], last: int = KEEP_LAST
    ) -> None:
        """Begin the group of a line that was read in full: from now on its lines are counted, and the ``last`` ones held."""
        groups = place.family.groups
        if place.key not in groups:  # else it was read for the sample of its numbers
            made = groups[place.key] = LineGroup(
                tuple(parts), tuple(signatures), place.family.numbers.formats, [], last
            )
            made.waits = min(last, max((bucket.room.last for bucket in buckets_of(made)), default=last))
            self._groups += 1

    def drain(self) -> list[tuple[Waiting, FieldPositions | None]]:
        """Drop all groups: add their counts, and return in order the lines still to be read, which count themselves."""
        groups = [group for family in self._families.values() for group in family.groups.values()]
        # Groups share buckets, of which each shows a few last lines only.
        ends: dict[int, list[int]] = {}
        for group in groups:
            for bucket in buckets_of(group):
                ends.setdefault(id(bucket), []).extend(number for number, _ in group.last)
        waiting: list[Waiting] = []
        for group in groups:
            starts = [first_shown(ends[id(bucket)], bucket.room.last) for bucket in buckets_of(group)]
            read = [line for line in group.last if line[0] >= min(starts)] if starts else []
            for counter, number in group.parts:
                counter.count += (group.lines - len(read)) * number
            waiting += read
        read_by = [(line, self.positions(line[1])) for line in sorted(waiting)]
        self._shapes.clear()
        self._families.clear()
        self._first.clear()
        self._made = self._groups = 0
        return read_by

    def _join_family(self, shape: Shape, family: Family, raw: bytes) -> None:
        """Join the family of lines with longer or shorter numbers, where the same numbers matter."""
        spans = [found.span() for found in digit_folding.NUMBER.finditer(raw)]
        changed = raw
        for index, span in enumerate(spans):
            if index not in family.numbers.matter:
                changed = digit_folding.changed(changed, *span)
        if self._effect(changed) == self._effect(raw):
            shape.family = family
            shape.values = digit_folding.pick_numbers(spans, family.numbers.matter)
            self._remember(shape)

    def _learn(self, shape: Shape, alike: tuple[Text, LineKind], raw: bytes) -> None:
        """Find the numbers that matter."""
        spans = [found.span() for found in digit_folding.NUMBER.finditer(raw)]
        kind, effect = self._effect(raw) if len(spans) <= MAX_NUMBERS else (None, None)
        if kind is None or effect is None:
            self._give_up(shape)
            return
        matter = [
            index
            for index, span in enumerate(spans)
            if self._effect(digit_folding.changed(raw, *span)) != (kind, effect)
        ]
        sensitive = tuple(one for one in kind.signatures or () if _depends_on_digits(one, raw))
        if any(regex_analysis.may_need_start(one.pattern.source) for one in sensitive):
            self._give_up(shape)  # only reading tells where the message begins
            return
        bare = kind.signatures is not None and effect.matched <= {one.id for one in sensitive}
        formats = kind.formats
        if formats is not None and not self._parser.states_numbers(raw.decode("utf-8", "replace"), formats):
            formats = None  # it has the words of a format and not its form
        shape.family = self._family(LearnedNumbers(tuple(matter), sensitive, formats, bare))
        shape.values = digit_folding.pick_numbers(spans, matter)
        self._remember(shape)
        if alike[1] is kind:
            self._first.setdefault(alike, shape.family)

    def _give_up(self, shape: Shape) -> None:
        """Have the lines of a shape read in full."""
        shape.unlearnable = True
        self._remember(shape)

    def _effect(self, raw: bytes) -> tuple[LineKind | None, LineEffect | None]:
        """Return the kind of a line, and what it would add."""
        text = raw.decode("utf-8", "replace")
        kind = self._prefilter.kinds([text]).get(0)
        return kind, None if kind is None else self._parser.effect(text, kind)


def _depends_on_digits(signature: Signature, raw: bytes) -> bool:
    """Tell whether a signature may match one line of a shape and miss another."""
    source = signature.pattern.source
    if signature.premise is None and not regex_analysis.depends_on_digits(source):
        return False
    relaxed = (
        None if signature.pattern.user else regex_analysis.with_any_digits(source, hexadecimal=digit_folding.HEX in raw)
    )
    return relaxed is None or relaxed.search(raw.decode("utf-8", "replace")) is not None
