"""Lines that say the same again: what a line adds is known from earlier ones that differ only where it does not matter.

A shape is a line, as bytes, with all digits (and what follows ``0x``) folded. After some lines of a shape were read in
full, its numbers are tried one by one: those whose change changes what the line adds (the rank, a field that keeps events
apart) matter, the others (times, pointers, durations) do not. Lines that agree in the numbers that matter form a group.
Once the first events of a group's buckets are kept, its lines are only counted, and the last few are read at the end.

Nothing is guessed about digits: where a literal holds some (``err=110``), lines with other digits there are another shape;
patterns in which particular digits count (``Xid 79`` against ``Xid 13``) are run on every line, and what they find belongs
to the group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nccl_triage.engine import digits, match
from nccl_triage.engine.schema import Signature
from nccl_triage.observations.store import KEEP_LAST, Bucket
from nccl_triage.parsers import templates, unknown_errors
from nccl_triage.scan import digit_folding, learned_fields
from nccl_triage.scan.digit_folding import Folder, Pick
from nccl_triage.scan.event_collector import Addition
from nccl_triage.scan.learned_fields import FieldPositions
from nccl_triage.scan.learned_shapes import LearnedNumbers, LearnedShape, LearnedShapes
from nccl_triage.scan.line_parser import LineEffect, LineParser
from nccl_triage.scan.literals import LineKind
from nccl_triage.scan.prefilter import Prefilter

#: Lines of a shape that are read in full before its numbers are tried.
PATIENCE = 8
#: Lines of a shape whose numbers were tried after which the rest of them is read by the positions of its fields.
WORTH_POSITIONS = 3
#: Shapes and groups of one source held at once: beyond, what is known is put away and learnt again.
MAX_SHAPES, MAX_GROUPS = 12_000, 32_000
#: Characters and numbers of a line that is worth learning.
MAX_TEXT, MAX_NUMBERS = 2000, 48


#: A line (its number, its bytes) that was counted and is read at the end when no later one of its group came.
Waiting = tuple[int, bytes]


@dataclass(slots=True)
class LineGroup:
    """The lines of a shape that agree in the numbers that matter."""

    parts: tuple[Addition, ...]
    #: Signatures that its lines match.
    signatures: tuple[str, ...]
    #: Formats of curves that may read its lines.
    formats: tuple[str, ...] | None
    #: The lines that wait, and how many do at most. No deque: it takes the room of sixty.
    last: list[Waiting]
    waits: int
    lines: int = 0

    def add(self, number: int, raw: bytes) -> None:
        """Count a line, and have it wait in the place of the oldest."""
        self.lines += 1
        last = self.last
        if self.waits == 1 and last:
            last[0] = (number, raw)  # as below, in half the time
            return
        last.append((number, raw))
        if len(last) > self.waits:
            del last[0]


@dataclass(slots=True)
class Family:
    """Lines of one source that differ in numbers only: what was learnt of them, and their groups by those that matter."""

    what: LearnedNumbers
    groups: dict[Hashable, LineGroup] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Shape:
    """Lines that differ in digits only, not in how many there are; ``values`` picks the numbers that matter."""

    #: What the literals of its lines tell; ``silent``: they hold none.
    kind: LineKind | None = None
    silent: bool = False
    #: Lines that were read in full; whether it is never to be learnt; whether it is no member of the family of its like.
    seen: int = 0
    cold: bool = False
    strange: bool = False
    family: Family | None = None
    values: Pick | None = None
    #: Picks the digits of literals; and the shapes that differ in them.
    literal: Pick | None = None
    variants: dict[Hashable, Shape] = field(default_factory=dict)
    #: How its lines are read, once some were read in full (how many) and have taught it.
    positions: FieldPositions | None = None
    reads: int = 0
    #: Where the learned shapes keep it.
    name: tuple[bytes, Hashable] = (b"", None)

    def know(self, kind: LineKind | None) -> None:
        """Take what the literals of its lines tell."""
        self.kind, self.silent = kind, kind is None


class GroupPlace(NamedTuple):
    """Where a group of lines is kept once its first lines were read."""

    family: Family
    key: Hashable
    positions: FieldPositions | None


class Shapes:
    """The shapes of one source, by whose ``parser`` lines are tried: trying adds nothing."""

    def __init__(self, parser: LineParser, prefilter: Prefilter) -> None:
        self._parser = parser
        self._prefilter = prefilter
        self._with_digits = digit_folding.folded_literals(prefilter.texts)
        self._shapes: dict[bytes, Shape] = {}
        self._folder = Folder()
        #: What earlier sources have taught.
        self.learned = LearnedShapes()
        self._families: dict[LearnedNumbers, Family] = {}
        #: By lines without the length of their numbers: the first family, and how many were read in full before.
        self._first: dict[tuple[bytes, LineKind], Family] = {}
        self._seen: dict[tuple[bytes, LineKind], int] = {}
        self._made = self._groups = 0

    @property
    def full(self) -> bool:
        """Whether ``drain`` is due."""
        return self._made > MAX_SHAPES or self._groups > MAX_GROUPS

    def group(self, raw: bytes) -> LineGroup | None:
        """Return the group of a line (without its end), if it is made."""
        shape = self._known(raw)
        if shape is None or shape.family is None:
            return None
        return shape.family.groups.get(key(shape.family, shape.values, raw))

    def _known(self, raw: bytes) -> Shape | None:
        """Return the shape of a line, if it is made."""
        shape = self._shapes.get(self._folder.fold(raw))
        if shape is not None and shape.literal is not None:
            return shape.variants.get(shape.literal(raw))
        return shape

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
        """Return where the group of a line can be made; None for a line that only is to be read in full."""
        if len(raw) > MAX_TEXT:
            return None
        shape = self._shape(raw)
        shape.know(kind)
        if shape.family is None and not shape.cold:
            self._place(shape, kind, raw)
        if shape.family is None:
            return None
        shape.reads += 1
        if shape.reads == WORTH_POSITIONS and shape.positions is None:
            text = raw.decode("utf-8", "replace")
            shape.positions = learned_fields.learn(text, kind, shape.family.what.sensitive, self._parser.parse)
            self._teach(shape)
        return GroupPlace(shape.family, key(shape.family, shape.values, raw), shape.positions)

    def _place(self, shape: Shape, kind: LineKind, raw: bytes) -> None:
        """Find the family of a shape: one that is known, or its own once enough lines like this were read."""
        alike = (digit_folding.NUMBER.sub(b"0", raw), kind)
        family = self._first.get(alike)
        if family is not None and not shape.strange:
            self._adopt(shape, family, raw)
            shape.strange = shape.family is None
        if shape.family is None:
            shape.seen += 1
            seen = self._seen[alike] = self._seen.get(alike, 0) + 1
            if (shape.seen if shape.strange else seen) > PATIENCE:
                self._learn(shape, alike, raw)

    def positions(self, raw: bytes) -> FieldPositions | None:
        """Return how a line is read, where its shape has taught it."""
        shape = self._known(raw)
        return None if shape is None else shape.positions

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
        """Take over what an earlier source has taught about a shape."""
        learnt = self.learned.shapes.get(shape.name)
        if learnt is None:
            return
        shape.know(learnt.kind)
        if learnt.what is None:
            shape.cold = True
        else:
            shape.family, shape.values, shape.positions = self._family(learnt.what), learnt.values, learnt.positions

    def _teach(self, shape: Shape) -> None:
        """Tell the next source what was learnt about a shape."""
        if shape.kind is not None:
            folded, values = shape.name
            literal = self._shapes[folded].literal
            what = None if shape.family is None else shape.family.what
            self.learned.keep(folded, values, literal, LearnedShape(shape.kind, what, shape.values, shape.positions))

    def _family(self, what: LearnedNumbers) -> Family:
        """Return the family of this source of which that is known."""
        family = self._families.get(what)
        if family is None:
            family = self._families[what] = Family(what)
        return family

    def keep(
        self, place: GroupPlace, parts: Iterable[Addition], signatures: Iterable[str], last: int = KEEP_LAST
    ) -> None:
        """Make the group of a line that was read in full; from now on its lines are counted, the ``last`` ones kept."""
        groups = place.family.groups
        if place.key not in groups:  # else it was read for the sample of its numbers
            made = groups[place.key] = LineGroup(tuple(parts), tuple(signatures), place.family.what.formats, [], last)
            made.waits = min(last, max((bucket.room.last for bucket in _buckets(made)), default=last))
            self._groups += 1

    def drain(self) -> list[tuple[Waiting, FieldPositions | None]]:
        """Put away all groups: count their lines, and return in order those to be read (they count themselves)."""
        groups = [group for family in self._families.values() for group in family.groups.values()]
        # Groups share buckets, of which each shows a few last lines only.
        ends: dict[int, list[int]] = {}
        for group in groups:
            for bucket in _buckets(group):
                ends.setdefault(id(bucket), []).extend(number for number, _ in group.last)
        waiting: list[Waiting] = []
        for group in groups:
            starts = [_start(ends[id(bucket)], bucket.room.last) for bucket in _buckets(group)]
            read = [line for line in group.last if line[0] >= min(starts)] if starts else []
            for counter, number in group.parts:
                counter.count += (group.lines - len(read)) * number
            waiting += read
        read_by = [(line, self.positions(line[1])) for line in sorted(waiting)]
        self._shapes.clear()
        self._families.clear()
        self._first.clear()
        self._seen.clear()
        self._made = self._groups = 0
        return read_by

    def _adopt(self, shape: Shape, family: Family, raw: bytes) -> None:
        """Take over what was learnt about lines with longer or shorter numbers, where it holds for this one."""
        spans = [found.span() for found in digit_folding.NUMBER.finditer(raw)]
        changed = raw
        for index, span in enumerate(spans):
            if index not in family.what.matter:
                changed = digit_folding.changed(changed, *span)
        if self._told(changed) == self._told(raw):
            shape.family = family
            shape.values = digit_folding.pick_numbers(spans, family.what.matter)
            self._teach(shape)

    def _learn(self, shape: Shape, alike: tuple[bytes, LineKind], raw: bytes) -> None:
        """Find the numbers that matter."""
        spans = [found.span() for found in digit_folding.NUMBER.finditer(raw)]
        kind, told = self._told(raw) if len(spans) <= MAX_NUMBERS else (None, None)
        if kind is None or told is None:
            self._give_up(shape)
            return
        matter = [
            index for index, span in enumerate(spans) if self._told(digit_folding.changed(raw, *span)) != (kind, told)
        ]
        sensitive = tuple(one for one in kind.signatures or () if _may_mind(one, raw))
        if any(digits.anchored(one.pattern.source) for one in sensitive):
            self._give_up(shape)  # where the message begins, only reading tells
            return
        bare = kind.signatures is not None and told.matched <= {one.id for one in sensitive}
        shape.family = self._family(LearnedNumbers(tuple(matter), sensitive, kind.formats, bare))
        shape.values = digit_folding.pick_numbers(spans, matter)
        self._teach(shape)
        if alike[1] is kind:
            self._first.setdefault(alike, shape.family)

    def _give_up(self, shape: Shape) -> None:
        """Have the lines of a shape read in full."""
        shape.cold = True
        self._teach(shape)

    def _told(self, raw: bytes) -> tuple[LineKind | None, LineEffect | None]:
        """Return the kind of a line, and what it would add."""
        text = raw.decode("utf-8", "replace")
        kind = self._prefilter.kinds([text]).get(0)
        return kind, None if kind is None else self._parser.effect(text, kind)


def _may_mind(signature: Signature, raw: bytes) -> bool:
    """Tell whether a signature may match one line of a shape and miss another."""
    source = signature.pattern.source
    if signature.premise is None and not digits.minds_digits(source):
        return False
    relaxed = digits.relaxed(source) if digit_folding.HEX not in raw and not signature.pattern.user else None
    return relaxed is None or relaxed.search(raw.decode("utf-8", "replace")) is not None


def _buckets(group: LineGroup) -> list[Bucket]:
    """Return which buckets of events the lines of a group go to."""
    return [counter for counter, _ in group.parts if isinstance(counter, Bucket)]


def _start(numbers: Sequence[int], last: int) -> int:
    """Return the first of the last few lines that a bucket shows."""
    return sorted(numbers)[-last:][0] if numbers else 0


def key(family: Family, pick: Pick | None, raw: bytes) -> Hashable:
    """Return what the lines of a group share: the numbers that matter, and what the patterns that mind digits find."""
    values = None if pick is None else pick(raw)
    return (values, _found(family.what, raw)) if family.what.sensitive else values


def _found(what: LearnedNumbers, raw: bytes) -> Hashable:
    """Return which of the patterns that mind digits match, and what keeps their events apart."""
    text = raw.decode("utf-8", "replace")
    tried = ((one, match.search(one, text)) for one in what.sensitive)
    found = tuple([(one.id, *map(fields.get, one.keep_by)) for one, fields in tried if fields is not None])
    # What is known to no signature is kept once a template.
    return found or (what.bare and unknown_errors.sounds(text) and templates.key(text))
