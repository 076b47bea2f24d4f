"""The table of what the flight recorders of all ranks say about each collective: bounded in space and mergeable.

A call is one sequence number of one group. For each way in which it was called (operation, sizes, types) the table holds
the set of ranks that called it so, as the bits of a number, and one line that shows it. Of a group the calls with the
highest numbers are kept: ``MAX_CALLS`` of it, and fewer of each where many groups would take more than ``MAX_CELLS``
together. The number kept depends only on all calls and the highest rank, and what is dropped never returns, so parts
merged in any order give the same table as the whole. Ranks and groups beyond their limits are dropped likewise.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from nccl_triage.recorder.entry import Shape

#: Calls kept of a rank in a group, and of all of them together.
MAX_KEPT, MAX_TOGETHER = 96, 1_000_000
#: Numbers of one call.
_WIDTH = 3


class Arrival(NamedTuple):
    """One call: its number, when it was issued (ns, the rank's clock), and its duration (us, -1 if unknown)."""

    seq: int
    created: int
    ran: int


def pack(arrivals: list[Arrival]) -> bytes:
    """Return the last calls as bytes, those of the lowest numbers first."""
    kept = sorted({one.seq: one for one in arrivals}.values())[-MAX_KEPT:]
    return array("q", [number for one in kept for number in one]).tobytes()


def unpack(data: bytes) -> Iterator[Arrival]:
    """Yield the calls."""
    numbers = array("q")
    numbers.frombytes(data)
    for at in range(0, len(numbers) - _WIDTH + 1, _WIDTH):
        yield Arrival(*numbers[at : at + _WIDTH])


def thinned(data: bytes, keep: int) -> bytes:
    """Return the last ``keep`` calls."""
    return data[-keep * _WIDTH * array("q").itemsize :]


def count(data: bytes) -> int:
    """Return how many calls there are."""
    return len(data) // (_WIDTH * array("q").itemsize)


#: Calls kept of one group, and of all of them together; a call of ranks beyond ``RANKS_A_CELL`` counts more than once.
MAX_CALLS, MAX_CELLS, RANKS_A_CELL = 4096, 200_000, 4096
#: Ways of calling told apart, standings (a rank in a group), pairs of ranks that send to each other, open ends of one.
MAX_WAYS, MAX_STANDINGS, MAX_PAIRS, MAX_OPEN = 16, 300_000, 100_000, 4
#: A higher number in a file's name is no rank.
MAX_RANK = 65_535

_K = TypeVar("_K", bound=tuple[object, ...])
_V = TypeVar("_V")


class GroupKey(NamedTuple):
    """A process group across ranks: its name and, since names repeat, a digest of the members where they are known."""

    name: str
    desc: str
    mark: str


class RecorderLine(NamedTuple):
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


@dataclass(slots=True)
class Callers:
    """The ranks that made a call in one way, as bits, with the first and last arrival by their own clocks."""

    ranks: int
    done: int
    failed: int
    example: RecorderLine
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
class GroupProgress:
    """The progress of one rank in one group. The stamp tells which of two dumps of a rank is later."""

    stamp: tuple[int, str]
    backend: str = ""
    #: The number of the group among those of its process, -1 where it tells nothing.
    number: int = -1
    enqueued: int = -1
    completed: int = -1
    first_seq: int = -1
    last_seq: int = -1
    done_seq: int = -1
    p2p: int = 0
    #: Its counters count every operation, those that the dump does not hold among them.
    counts_all: bool = False
    open: RecorderLine | None = None
    open_seq: int = -1
    open_way: Way | None = None
    failed: bool = False
    timeout_ms: int | None = None
    last: RecorderLine | None = None
    #: The user's frames of the open call, else of the last one.
    frames: tuple[str, ...] = ()
    #: Its last arrivals at collectives, packed.
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
    header: RecorderLine
    #: What was found broken when it was written: gpu or nic, with the line that says so.
    broken: tuple[tuple[str, RecorderLine], ...] = ()


@dataclass(slots=True)
class End:
    """One end of a pair: the sends or receives that a rank issued for its peer."""

    stamp: tuple[int, str]
    rank: int
    cut: bool
    total: int = 0
    done: int = 0
    open: tuple[tuple[Way, RecorderLine], ...] = ()


PairKey = tuple[GroupKey, int, int, str]


@dataclass(slots=True)
class RecorderTable:
    """The table of all dumps, bounded in size."""

    dumps: dict[tuple[int], RankDump] = field(default_factory=dict)
    groups: dict[GroupKey, tuple[int, ...]] = field(default_factory=dict)
    standings: dict[tuple[GroupKey, int], GroupProgress] = field(default_factory=dict)
    calls: dict[GroupKey, dict[int, Cell]] = field(default_factory=dict)
    pairs: dict[PairKey, End] = field(default_factory=dict)
    #: Whether calls were dropped because there were too many groups.
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
        """Drop what exceeds the bounds."""
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
        counts = [count(standing.arrivals) for standing in self.standings.values()]
        keep = MAX_KEPT
        while keep > 1 and sum(min(keep, one) for one in counts) > MAX_TOGETHER:
            keep //= 2
        for place, standing in self.standings.items():
            if count(standing.arrivals) > keep:
                # A copy: the part that it came from has it, too.
                self.standings[place] = replace(standing, arrivals=thinned(standing.arrivals, keep))


def _keep(table: dict[_K, _V], limit: int) -> None:
    """Drop the keys with the greatest values."""
    if len(table) > limit:
        for key in sorted(table, key=lambda one: (zlib.crc32(repr(one).encode("utf-8", "replace")), one))[limit:]:
            del table[key]


_Stamped = TypeVar("_Stamped", GroupProgress, RankDump, End)


def _later(mine: dict[_K, _Stamped], theirs: Mapping[_K, _Stamped]) -> None:
    for key, value in theirs.items():
        present = mine.get(key)
        if present is None or value.stamp > present.stamp:
            mine[key] = value
