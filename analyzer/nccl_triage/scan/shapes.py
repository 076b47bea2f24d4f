"""Lines that say the same again: what a line adds is known from earlier ones that differ only where it does not matter.

A shape is a line with all digits (and what follows ``0x``) folded, and the set of its literals. After some lines of a shape were read in full, its
numbers are tried one by one: those whose change changes what the line adds (the rank, a field that keeps events apart)
matter, the others (times, pointers, durations) do not. Lines that agree in the numbers that matter form a group. Once
the first events of a group's buckets are kept, its lines are only counted, and the last few are read at the end.

Nothing is guessed about patterns: those in which particular digits count (``Xid 79`` against ``Xid 13``) are run on every
line, and what they find belongs to the group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

from nccl_triage.engine import match
from nccl_triage.engine.digits import minds_digits
from nccl_triage.engine.schema import Signature
from nccl_triage.events import KEEP_LAST
from nccl_triage.patterns import lazily
from nccl_triage.scan.prefilter import Kind

#: Lines of a shape that are read in full before its numbers are tried.
PATIENCE = 8
#: Shapes and groups of one source held at once: beyond, what is known is put away and learnt again.
MAX_SHAPES, MAX_GROUPS = 8000, 12_000
#: Characters and numbers of a line that is worth learning.
MAX_TEXT, MAX_NUMBERS = 2000, 48

_POINTER = lazily(r"(?<![0-9A-Za-z])0x[0-9a-fA-F]+")
_NUMBER = lazily(r"(?<![0-9A-Za-z])0x[0-9a-fA-F]+|[0-9]+")
_FOLD = {ord(digit): "0" for digit in "123456789"}
#: Another digit for each; none becomes a leading zero.
_OTHER = str.maketrans("0123456789abcdefABCDEF", "1234567898bcdefaBCDEFA")


class Counted(Protocol):
    """What a line adds to: a bucket of events, a table."""

    count: int


class Part(NamedTuple):
    """What one line adds to a counter."""

    counter: Counted
    number: int


class Waiting(NamedTuple):
    """A line that was counted and is read at the end when no later one of its group came."""

    number: int
    text: str
    kind: Kind


#: What a line adds, as something to compare: None when it must be read in full whatever its numbers are.
Outcome = Callable[[str, Kind], Hashable | None]


@dataclass(slots=True)
class Group:
    """The lines of a shape that agree in the numbers that matter."""

    parts: tuple[Part, ...]
    #: Signatures that its lines match.
    signatures: tuple[str, ...]
    lines: int = 0
    last: deque[Waiting] = field(default_factory=lambda: deque(maxlen=KEEP_LAST))

    def take(self, number: int, text: str, kind: Kind) -> None:
        """Count a line."""
        self.lines += 1
        self.last.append(Waiting(number, text, kind))


@dataclass(slots=True)
class Shape:
    """What was learnt about lines that differ in digits only."""

    seen: int = 0
    cold: bool = False
    slices: tuple[slice, ...] | None = None
    sensitive: tuple[Signature, ...] = ()
    groups: dict[Hashable, Group] = field(default_factory=dict)


class Place(NamedTuple):
    """Where a group of lines is kept once its first lines were read."""

    shape: Shape
    key: Hashable


class Shapes:
    """The shapes of one source; ``outcome`` tells what a line would add, and adds nothing."""

    def __init__(self, outcome: Outcome, kinds: Callable[[str], Kind | None]) -> None:
        self._outcome = outcome
        self._kinds = kinds
        self._shapes: dict[tuple[int, str], Shape] = {}
        self._groups = 0
        #: Kinds are told apart by identity, so they must live as long as their shapes.
        self._held: dict[int, Kind] = {}

    @property
    def full(self) -> bool:
        """Whether ``drain`` is due."""
        return len(self._shapes) > MAX_SHAPES or self._groups > MAX_GROUPS

    def find(self, text: str, kind: Kind) -> Group | Place | None:
        """Return the group of a line; its place when the group is not made yet; None for a line to be read in full."""
        if len(text) > MAX_TEXT:
            return None
        key = (id(kind), _folded(text))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape()
            self._held[id(kind)] = kind
        if shape.slices is None:
            if not shape.cold:
                shape.seen += 1
                if shape.seen > PATIENCE:
                    self._learn(shape, text, kind)
            return None
        values: Hashable = tuple([text[part] for part in shape.slices])
        if shape.sensitive:
            values = (values, _told(shape.sensitive, text))
        return shape.groups.get(values) or Place(shape, values)

    def keep(self, place: Place, parts: Iterable[Part], signatures: Iterable[str]) -> None:
        """Make the group of a line that was read in full; from now on its lines are counted."""
        place.shape.groups[place.key] = Group(tuple(parts), tuple(signatures))
        self._groups += 1

    def drain(self) -> Iterator[Waiting]:
        """Put away all groups: count their lines, and yield in order those to be read (they count themselves)."""
        waiting: list[Waiting] = []
        for shape in self._shapes.values():
            for group in shape.groups.values():
                counted = group.lines - len(group.last)
                for counter, number in group.parts:
                    counter.count += counted * number
                waiting.extend(group.last)
        self._shapes.clear()
        self._held.clear()
        self._groups = 0
        return iter(sorted(waiting, key=lambda line: line.number))

    def _learn(self, shape: Shape, text: str, kind: Kind) -> None:
        """Find the numbers that matter."""
        spans = [found.span() for found in _NUMBER.finditer(text)]
        told = self._outcome(text, kind) if len(spans) <= MAX_NUMBERS else None
        if told is None:
            shape.cold = True
            return
        matter: list[tuple[int, int]] = []
        for start, end in spans:
            kept = start + 2 if text.startswith("0x", start) else start
            changed = text[:kept] + text[kept:end].translate(_OTHER) + text[end:]
            if self._kinds(changed) is not kind or self._outcome(changed, kind) != told:
                matter.append((start, end))
        shape.slices = tuple(slice(start, end) for start, end in _joined(matter))
        shape.sensitive = tuple(one for one in kind.signatures or () if minds_digits(one.pattern.source))


def _folded(text: str) -> str:
    if "0x" in text:
        text = _POINTER.sub(lambda found: "0x".ljust(len(found[0]), "0"), text)
    return text.translate(_FOLD)


def _told(signatures: Iterable[Signature], text: str) -> Hashable:
    """Return what the patterns that mind digits make of a line: which of them match, and what keeps their events apart."""
    found = ((one, match.search(one, text)) for one in signatures)
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
