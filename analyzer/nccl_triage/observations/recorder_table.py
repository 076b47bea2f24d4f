"""What the flight recorders of all ranks say about each collective: kept in bounded space and mergeable.

A call is one number of one group; for each way in which it was called (operation, sizes, types) it is known which ranks
called it so, as bits of a number, and one line that shows it. Of a group the calls with the highest numbers are kept:
``MAX_CALLS`` of it, and fewer of each where many groups would take more than ``MAX_CELLS`` together. How many follows
from all calls and the highest rank alone, and what is pushed out never comes back, so parts put together in any order
give what the whole gives. Ranks and groups beyond their limits are left out the same way.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

#: Calls kept of one group, and of all of them together; a call of ranks beyond ``RANKS_A_CELL`` counts more than once.
MAX_CALLS, MAX_CELLS, RANKS_A_CELL = 4096, 200_000, 4096
#: Ways of calling told apart, standings (a rank in a group), pairs of ranks that send to each other, open ends of one.
MAX_WAYS, MAX_STANDINGS, MAX_PAIRS, MAX_OPEN = 16, 300_000, 100_000, 4
#: A higher number in a file's name is no rank.
MAX_RANK = 65_535
#: Arrivals kept of a rank in a group, and of all of them together.
MAX_KEPT, MAX_TOGETHER = 96, 1_000_000
#: Numbers of one packed arrival.
_WIDTH = 3

#: The dimensions of each tensor of a call.
Shape = tuple[tuple[int, ...], ...]

_K = TypeVar("_K", bound=tuple[object, ...])
_V = TypeVar("_V")


class GroupKey(NamedTuple):
    """A process group across ranks: several may share a name, so a mark of the members belongs to it where known."""

    name: str
    desc: str
    mark: str


class Line(NamedTuple):
    """A line of the text made of a dump."""

    source: str
    line: int
    rank: int
    text: str
    created: int


class Way(NamedTuple):
    """How a collective was called."""

    op: str
    inputs: Shape
    outputs: Shape
    input_types: tuple[str, ...]
    output_types: tuple[str, ...]


class Arrival(NamedTuple):
    """When a rank came to one call: the call's number, when it was issued (ns, by the rank's own clock), its run time (us, or -1)."""

    seq: int
    created: int
    ran: int


@dataclass(slots=True)
class Callers:
    """The ranks that made a call one way, as bits; the first and the last to come, by their own clocks."""

    ranks: int
    done: int
    failed: int
    example: Line
    first: tuple[int, int]
    last: tuple[int, int]

    def copy(self) -> Callers:
        """Return an independent copy."""
        return Callers(self.ranks, self.done, self.failed, self.example, self.first, self.last)

    def absorb(self, other: Callers) -> None:
        """Take over the callers that another part knows."""
        self.ranks |= other.ranks
        self.done |= other.done
        self.failed |= other.failed
        self.example = min(self.example, other.example)
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)


@dataclass(slots=True)
class Cell:
    """One call; ``others`` are ranks that called it in ways beyond ``MAX_WAYS``."""

    ways: dict[Way, Callers] = field(default_factory=dict)
    others: int = 0

    @property
    def ranks(self) -> int:
        """All ranks that made the call, as bits."""
        bits = self.others
        for callers in self.ways.values():
            bits |= callers.ranks
        return bits

    def absorb(self, other: Cell) -> None:
        """Take over what another part knows of the call."""
        self.others |= other.others
        for way, theirs in other.ways.items():
            mine = self.ways.get(way)
            if mine is None:
                self.ways[way] = theirs.copy()
            else:
                mine.absorb(theirs)
        for way in sorted(self.ways)[MAX_WAYS:]:
            self.others |= self.ways.pop(way).ranks


@dataclass(slots=True)
class Standing:
    """Where one rank stands in one group. The stamp tells which of two dumps of a rank is the later one."""

    stamp: tuple[int, str]
    backend: str = ""
    #: By which number the process counts the group among its own, -1 where that tells nothing.
    number: int = -1
    enqueued: int = -1
    completed: int = -1
    first_seq: int = -1
    last_seq: int = -1
    done_seq: int = -1
    p2p: int = 0
    #: Its counters count every operation, those that the dump does not hold among them.
    counts_all: bool = False
    open: Line | None = None
    open_seq: int = -1
    open_way: Way | None = None
    failed: bool = False
    timeout_ms: int | None = None
    last: Line | None = None
    #: The user's frames of the open call, else of the last one.
    frames: tuple[str, ...] = ()
    #: When it came to the last collectives (``pack_arrivals``).
    arrivals: bytes = b""


@dataclass(slots=True)
class RankDump:
    """One dump as a whole."""

    stamp: tuple[int, str]
    version: str
    library: str
    entries: int
    #: Older entries were overwritten.
    cut: bool
    header: Line
    #: What was found broken when it was written: gpu or nic, with the line that says so.
    broken: tuple[tuple[str, Line], ...] = ()


@dataclass(slots=True)
class End:
    """One end of a pair: what the rank issued towards its peer."""

    stamp: tuple[int, str]
    rank: int
    cut: bool
    total: int = 0
    done: int = 0
    open: tuple[tuple[Way, Line], ...] = ()


PairKey = tuple[GroupKey, int, int, str]


@dataclass(slots=True)
class RecorderTable:
    """All dumps, bounded."""

    dumps: dict[tuple[int], RankDump] = field(default_factory=dict)
    groups: dict[GroupKey, tuple[int, ...]] = field(default_factory=dict)
    standings: dict[tuple[GroupKey, int], Standing] = field(default_factory=dict)
    calls: dict[GroupKey, dict[int, Cell]] = field(default_factory=dict)
    pairs: dict[PairKey, End] = field(default_factory=dict)
    #: Calls were left out because there were too many groups.
    cut: bool = False

    def __bool__(self) -> bool:
        return bool(self.dumps)

    def sources(self) -> frozenset[str]:
        """Return the names of the files that the dumps came from."""
        return frozenset(dump.header.source for dump in self.dumps.values())

    def absorb(self, other: RecorderTable) -> None:
        """Take over the dumps of another part; associative and commutative."""
        if not other:
            return
        _later(self.dumps, other.dumps)
        _later(self.standings, other.standings)
        _later(self.pairs, other.pairs)
        for group, members in other.groups.items():
            known = self.groups.get(group, ())
            if known is not members:
                self.groups[group] = max(members, known)
        self.cut = self.cut or other.cut
        for key, theirs in other.calls.items():
            mine = self.calls.setdefault(key, {})
            for seq, cell in theirs.items():
                present = mine.get(seq)
                if present is None:
                    present = mine[seq] = Cell()
                present.absorb(cell)
        self.thin()

    def thin(self) -> None:
        """Leave out what is beyond the bounds."""
        _keep(self.standings, MAX_STANDINGS)
        _keep(self.pairs, MAX_PAIRS)
        self._thin_arrivals()
        weight = 1 + max((rank for (rank,) in self.dumps), default=0) // RANKS_A_CELL
        keep = MAX_CALLS
        while keep > 1 and weight * sum(min(keep, len(cells)) for cells in self.calls.values()) > MAX_CELLS:
            keep //= 2
        for cells in self.calls.values():
            if len(cells) > keep:
                self.cut = True
                for seq in sorted(cells)[:-keep]:
                    del cells[seq]

    def _thin_arrivals(self) -> None:
        if MAX_KEPT * len(self.standings) <= MAX_TOGETHER:
            return
        counts = [count_arrivals(standing.arrivals) for standing in self.standings.values()]
        keep = MAX_KEPT
        while keep > 1 and sum(min(keep, one) for one in counts) > MAX_TOGETHER:
            keep //= 2
        for place, standing in self.standings.items():
            if count_arrivals(standing.arrivals) > keep:
                # A copy: the part that it came from has it, too.
                self.standings[place] = replace(standing, arrivals=thin_arrivals(standing.arrivals, keep))


def _keep(table: dict[_K, _V], limit: int) -> None:
    """Leave out the keys with the greatest marks."""
    if len(table) > limit:
        for key in sorted(table, key=lambda one: (zlib.crc32(repr(one).encode("utf-8", "replace")), one))[limit:]:
            del table[key]


_Stamped = TypeVar("_Stamped", Standing, RankDump, End)


def _later(mine: dict[_K, _Stamped], theirs: Mapping[_K, _Stamped]) -> None:
    for key, value in theirs.items():
        present = mine.get(key)
        if present is None or value.stamp > present.stamp:
            mine[key] = value


def pack_arrivals(arrivals: list[Arrival]) -> bytes:
    """Return the last arrivals as bytes, in the order of the calls."""
    kept = sorted({one.seq: one for one in arrivals}.values())[-MAX_KEPT:]
    return array("q", [number for one in kept for number in one]).tobytes()


def unpack_arrivals(data: bytes) -> Iterator[Arrival]:
    """Yield the arrivals."""
    numbers = array("q")
    numbers.frombytes(data)
    for at in range(0, len(numbers) - _WIDTH + 1, _WIDTH):
        yield Arrival(*numbers[at : at + _WIDTH])


def thin_arrivals(data: bytes, keep: int) -> bytes:
    """Return the last ``keep`` arrivals."""
    return data[-keep * _WIDTH * array("q").itemsize :]


def count_arrivals(data: bytes) -> int:
    """Return how many arrivals there are."""
    return len(data) // (_WIDTH * array("q").itemsize)
