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

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple, Protocol

from nccl_triage.engine import digits, match
from nccl_triage.engine.schema import Signature
from nccl_triage.events import KEEP_LAST, Bucket
from nccl_triage.patterns import lazily
from nccl_triage.scan.prefilter import Kind, Prefilter

#: Lines of a shape that are read in full before its numbers are tried.
PATIENCE = 8
#: Shapes and groups of one source held at once: beyond, what is known is put away and learnt again.
MAX_SHAPES, MAX_GROUPS = 8000, 12_000
#: Characters and numbers of a line that is worth learning.
MAX_TEXT, MAX_NUMBERS = 2000, 48

_HEX = b"0x"
_POINTER = lazily(rb"(?<![0-9A-Za-z])0x[0-9a-fA-F]+")
_NUMBER = lazily(rb"(?<![0-9A-Za-z])0x[0-9a-fA-F]+|[0-9]+")
_ZERO = ord("0")
_FOLD = bytes.maketrans(b"123456789", b"000000000")
#: Another digit for each; none becomes a leading zero.
_OTHER = bytes.maketrans(b"0123456789abcdefABCDEF", b"1234567898bcdefaBCDEFA")


class Counted(Protocol):
    """What a line adds to: a bucket of events, a table."""

    count: int


class Part(NamedTuple):
    """What one line adds to a counter."""

    counter: Counted
    number: int


#: A line (its number, its bytes) that was counted and is read at the end when no later one of its group came.
Waiting = tuple[int, bytes]
#: What a line adds, as something to compare: None when it must be read in full whatever its numbers are.
Outcome = Callable[[str, Kind], Hashable | None]
#: Cuts some parts out of a line.
Pick = Callable[[bytes], Hashable]


@dataclass(slots=True)
class Group:
    """The lines of a shape that agree in the numbers that matter."""

    parts: tuple[Part, ...]
    #: Signatures that its lines match.
    signatures: tuple[str, ...]
    #: Formats of curves that may read its lines.
    formats: tuple[str, ...] | None
    last: deque[Waiting]
    lines: int = 0


@dataclass(slots=True)
class Family:
    """What was learnt about lines that differ in numbers only: which of the numbers matter, and the groups by them."""

    matter: tuple[int, ...]
    sensitive: tuple[Signature, ...]
    formats: tuple[str, ...] | None
    groups: dict[Hashable, Group] = field(default_factory=dict)


@dataclass(slots=True)
class Shape:
    """Lines that differ in digits only, not in how many there are; ``values`` picks the numbers that matter."""

    kind: Kind | None = None
    seen: int = 0
    cold: bool = False
    family: Family | None = None
    values: Pick | None = None
    #: Picks the digits of literals; and the shapes that differ in them.
    literal: Pick | None = None
    variants: dict[Hashable, Shape] = field(default_factory=dict)


class Place(NamedTuple):
    """Where a group of lines is kept once its first lines were read."""

    family: Family
    key: Hashable


class Shapes:
    """The shapes of one source; ``outcome`` tells what a line would add, and adds nothing."""

    def __init__(self, outcome: Outcome, prefilter: Prefilter) -> None:
        self._outcome = outcome
        self._prefilter = prefilter
        self._shapes: dict[bytes, Shape] = {}
        self._families: list[Family] = []
        self._first: dict[tuple[bytes, Kind], Family] = {}
        self._made = self._groups = 0

    @property
    def full(self) -> bool:
        """Whether ``drain`` is due."""
        return self._made > MAX_SHAPES or self._groups > MAX_GROUPS

    def group(self, raw: bytes) -> Group | None:
        """Return the group of a line (without its end), if it is made."""
        shape = self._shapes.get(_folded(raw) if _HEX in raw else raw.translate(_FOLD))
        if shape is not None and shape.literal is not None:
            shape = shape.variants.get(shape.literal(raw))
        if shape is None or shape.family is None:
            return None
        return shape.family.groups.get(_key(shape.family, shape.values, raw))

    def kind(self, raw: bytes, text: str) -> Kind | None:
        """Return what the literals of a line tell, from another line of its shape where there was one."""
        if len(raw) > MAX_TEXT:
            return self._prefilter.kinds([text]).get(0)
        shape = self._shape(raw)
        if shape.kind is None:
            shape.kind = self._prefilter.kinds([text]).get(0)
        return shape.kind

    def place(self, raw: bytes) -> Place | None:
        """Return where the group of a line can be made; None for a line that only is to be read in full."""
        if len(raw) > MAX_TEXT:
            return None
        shape = self._shape(raw)
        if shape.family is None and not shape.cold:
            shape.seen += 1
            if shape.seen == 1:
                self._adopt(shape, raw)
            elif shape.seen > PATIENCE:
                self._learn(shape, raw)
        return None if shape.family is None else Place(shape.family, _key(shape.family, shape.values, raw))

    def _shape(self, raw: bytes) -> Shape:
        """Return the shape of a line, a new one where there is none."""
        folded = _folded(raw)
        shape = self._shapes.get(folded)
        if shape is None:
            shape = self._shapes[folded] = Shape(literal=self._literal_digits(folded))
            self._made += 1
        if shape.literal is not None:
            values = shape.literal(raw)
            variant = shape.variants.get(values)
            if variant is None:
                variant = shape.variants[values] = Shape()
                self._made += 1
            shape = variant
        return shape

    def keep(self, place: Place, parts: Iterable[Part], signatures: Iterable[str], last: int = KEEP_LAST) -> None:
        """Make the group of a line that was read in full; from now on its lines are counted, the ``last`` ones kept."""
        groups = place.family.groups
        if place.key not in groups:  # else it was read for the sample of its numbers
            waiting = deque[Waiting](maxlen=last)
            groups[place.key] = Group(tuple(parts), tuple(signatures), place.family.formats, waiting)
            self._groups += 1

    def drain(self) -> list[Waiting]:
        """Put away all groups: count their lines, and return in order those to be read (they count themselves)."""
        groups = [group for family in self._families for group in family.groups.values()]
        # Groups share buckets, of which each shows a few last lines only.
        ends: dict[int, list[int]] = {}
        for group in groups:
            for bucket in _buckets(group):
                ends.setdefault(bucket, []).extend(number for number, _ in group.last)
        starts = {bucket: sorted(numbers)[-KEEP_LAST:][0] for bucket, numbers in ends.items() if numbers}
        waiting: list[Waiting] = []
        for group in groups:
            start = min((starts.get(bucket, 0) for bucket in _buckets(group)), default=None)
            read = [] if start is None else [line for line in group.last if line[0] >= start]
            for counter, number in group.parts:
                counter.count += (group.lines - len(read)) * number
            waiting += read
        self._shapes.clear()
        self._families.clear()
        self._first.clear()
        self._made = self._groups = 0
        return sorted(waiting)

    def _literal_digits(self, folded: bytes) -> Pick | None:
        """Return the digits of a line that may belong to a literal."""
        lowered = folded.lower()
        spans: set[tuple[int, int]] = set()
        for literal in _folded_literals(self._prefilter.texts):
            at = lowered.find(literal)
            while at >= 0:
                spans.update((at + n, at + n + 1) for n, code in enumerate(literal) if code == _ZERO)
                at = lowered.find(literal, at + 1)
        return _pick(sorted(spans))

    def _adopt(self, shape: Shape, raw: bytes) -> None:
        """Take over what was learnt about lines with longer or shorter numbers, where it holds for this one."""
        kind = shape.kind
        family = None if kind is None else self._first.get((_NUMBER.sub(b"0", raw), kind))
        if family is None:
            return
        spans = [found.span() for found in _NUMBER.finditer(raw)]
        changed = raw
        for index, span in enumerate(spans):
            if index not in family.matter:
                changed = _changed(changed, *span)
        if self._told(changed) == self._told(raw):
            shape.family = family
            shape.values = _pick(spans[index] for index in family.matter)

    def _learn(self, shape: Shape, raw: bytes) -> None:
        """Find the numbers that matter."""
        spans = [found.span() for found in _NUMBER.finditer(raw)]
        kind, told = self._told(raw) if len(spans) <= MAX_NUMBERS else (None, None)
        if kind is None or told is None:
            shape.cold = True
            return
        matter = [index for index, span in enumerate(spans) if self._told(_changed(raw, *span)) != (kind, told)]
        sensitive = tuple(one for one in kind.signatures or () if _may_mind(one, raw))
        if any(digits.anchored(one.pattern.source) for one in sensitive):
            shape.cold = True  # where the message begins, only reading tells
            return
        shape.family = Family(tuple(matter), sensitive, kind.formats)
        shape.values = _pick(spans[index] for index in matter)
        self._families.append(shape.family)
        self._first.setdefault((_NUMBER.sub(b"0", raw), kind), shape.family)

    def _told(self, raw: bytes) -> tuple[Kind | None, Hashable | None]:
        """Return the kind of a line, and what it would add."""
        text = raw.decode("utf-8", "replace")
        kind = self._prefilter.kinds([text]).get(0)
        return kind, None if kind is None else self._outcome(text, kind)


def _changed(raw: bytes, start: int, end: int) -> bytes:
    """Return a line with other digits in one of its numbers."""
    kept = start + 2 if raw.startswith(_HEX, start) else start
    return raw[:kept] + raw[kept:end].translate(_OTHER) + raw[end:]


def _pick(spans: Iterable[tuple[int, int]]) -> Pick | None:
    """Return what cuts these parts out of a line; None for no parts."""
    slices = [slice(start, end) for start, end in _joined(list(spans))]
    return itemgetter(*slices) if slices else None


def _may_mind(signature: Signature, raw: bytes) -> bool:
    """Tell whether a pattern may find one line of a shape and miss another."""
    source = signature.pattern.source
    if not digits.minds_digits(source):
        return False
    relaxed = digits.relaxed(source) if _HEX not in raw and not signature.pattern.user else None
    return relaxed is None or relaxed.search(raw.decode("utf-8", "replace")) is not None


@lru_cache(maxsize=4)
def _folded_literals(texts: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the literals that hold digits, as they stand in folded lines in lower case."""
    folded = {_folded(text.encode()).lower() for text in texts}
    return tuple(sorted(literal for literal in folded if _ZERO in literal))


def _folded(raw: bytes) -> bytes:
    if _HEX in raw:
        raw = _POINTER.sub(lambda found: _HEX.ljust(len(found[0]), b"0"), raw)
    return raw.translate(_FOLD)


def _buckets(group: Group) -> list[int]:
    """Return which buckets of events the lines of a group go to."""
    return [id(counter) for counter, _ in group.parts if isinstance(counter, Bucket)]


def _key(family: Family, pick: Pick | None, raw: bytes) -> Hashable:
    """Return what the lines of a group share: the numbers that matter, and what the patterns that mind digits find."""
    values = None if pick is None else pick(raw)
    return (values, _found(family, raw)) if family.sensitive else values


def _found(family: Family, raw: bytes) -> Hashable:
    """Return which of the patterns that mind digits match, and what keeps their events apart."""
    text = raw.decode("utf-8", "replace")
    found = ((one, match.search(one, text)) for one in family.sensitive)
    return tuple([(one.id, *map(fields.get, one.keep_by)) for one, fields in found if fields is not None])


def _joined(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans, those that lie close together as one: fewer cuts are faster than fewer characters."""
    if not spans:
        return
    start, end = spans[0]
    for (_, _), (begin, stop) in pairwise(spans):
        if begin - end > 2:
            yield start, end
            start = begin
        end = stop
    yield start, end
