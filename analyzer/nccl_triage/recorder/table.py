"""What the flight recorders of all ranks say about each collective: kept in bounded space and mergeable.

A call is one number of one group; for each way in which it was called (operation, sizes, types) it is known which ranks
called it so, as bits of a number, and one line that shows it. Of a group the calls with the highest numbers are kept:
``MAX_CALLS`` of it, and fewer of each where many groups would take more than ``MAX_CELLS`` together. How many follows
from all calls and the highest rank alone, and what is pushed out never comes back, so parts put together in any order
give what the whole gives. Ranks and groups beyond their limits are left out the same way.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from nccl_triage.recorder.dump import Dump, Entry, Shape

#: Calls kept of one group, and of all of them together; a call of ranks beyond ``RANKS_A_CELL`` counts more than once.
MAX_CALLS, MAX_CELLS, RANKS_A_CELL = 4096, 200_000, 4096
#: Ways of calling told apart, standings (a rank in a group), pairs of ranks that send to each other, open ends of one.
MAX_WAYS, MAX_STANDINGS, MAX_PAIRS, MAX_OPEN = 16, 300_000, 100_000, 4
#: A higher number in a file's name is no rank.
MAX_RANK = 65_535

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
        self._thin()

    def _thin(self) -> None:
        _keep(self.standings, MAX_STANDINGS)
        _keep(self.pairs, MAX_PAIRS)
        weight = 1 + max((rank for (rank,) in self.dumps), default=0) // RANKS_A_CELL
        keep = MAX_CALLS
        while keep > 1 and weight * sum(min(keep, len(cells)) for cells in self.calls.values()) > MAX_CELLS:
            keep //= 2
        for cells in self.calls.values():
            if len(cells) > keep:
                self.cut = True
                for seq in sorted(cells)[:-keep]:
                    del cells[seq]


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


def way_of(entry: Entry) -> Way:
    """Return how an operation was called."""
    return Way(entry.op, entry.inputs, entry.outputs, entry.input_types, entry.output_types)


class Filling:
    """Puts the records of one dump into a table of its own."""

    def __init__(self, dump: Dump, rank: int, source: str, header: str) -> None:
        self.table = RecorderTable()
        self._dump, self._rank, self._source = dump, rank, source
        self._bit = 1 << rank
        entries = dump.entries
        created = max((entry.created or 0 for entry in entries), default=0)
        self._stamp = (created, source)
        self._cut = bool(entries) and entries[0].record > 0
        self.table.dumps[(rank,)] = RankDump(
            self._stamp, dump.version, dump.library, len(entries), self._cut, Line(source, 1, rank, header, created)
        )
        self._keys: dict[tuple[str, str], GroupKey] = {}
        self._ways: dict[Way, Way] = {}
        for group in dump.groups.values():
            if group.name:
                self._key(group.name, group.desc)
            else:
                self.table.groups[GroupKey("", "", "")] = group.ranks
        for name, status in dump.status.items():
            standing = self._standing(self._key(name, ""))
            standing.enqueued, standing.completed = status.enqueued, status.completed

    def _key(self, name: str, desc: str) -> GroupKey:
        known = self._keys.get((name, ""))
        if known is None:
            group = self._dump.groups.get(name)
            members = group.ranks if group is not None else ()
            mark = group.mark if group is not None else ""
            desc = desc or (group.desc if group is not None else "") or self._dump.described.get(name, "")
            known = self._keys[(name, "")] = GroupKey(name, desc, mark)
            if members:
                self.table.groups[known] = members
        return known

    def _standing(self, key: GroupKey) -> Standing:
        found = self.table.standings.get((key, self._rank))
        if found is None:
            found = self.table.standings[(key, self._rank)] = Standing(self._stamp)
        return found

    def add(self, entry: Entry, number: int, text: str) -> None:
        """Take one record, which stands on a line of the text."""
        key = self._key(entry.group, entry.desc)
        standing = self._standing(key)
        line = Line(self._source, number, self._rank, text, entry.created or 0)
        way = way_of(entry)
        way = self._ways.setdefault(way, way)
        standing.backend = entry.backend
        standing.number = self._dump.numbers.get(entry.group, -1)
        standing.last = line
        if standing.open is None:
            standing.frames = entry.frames
        if not entry.done and standing.open is None:
            standing.open, standing.open_seq, standing.open_way = line, entry.seq, way
            standing.failed, standing.timeout_ms = entry.failed, entry.timeout_ms
        if entry.p2p:
            if entry.src is not None and entry.dst is not None:
                self._pair((key, entry.src, entry.dst, entry.op), entry, way, line)
            standing.p2p += 1
            return
        seq = entry.seq
        standing.first_seq = seq if standing.first_seq < 0 else min(standing.first_seq, seq)
        standing.last_seq = max(standing.last_seq, seq)
        standing.counts_all |= entry.backend == "gloo" and entry.op_id != seq
        if entry.done:
            standing.done_seq = max(standing.done_seq, seq)
        moment = (entry.created or 0, self._rank)
        callers = Callers(
            self._bit, self._bit if entry.done else 0, self._bit if entry.failed else 0, line, moment, moment
        )
        cell = self.table.calls.setdefault(key, {}).setdefault(seq, Cell())
        present = cell.ways.get(way)
        if present is None:
            cell.ways[way] = callers
        else:
            present.absorb(callers)

    def _pair(self, place: PairKey, entry: Entry, way: Way, line: Line) -> None:
        end = self.table.pairs.get(place)
        if end is None:
            end = self.table.pairs[place] = End(self._stamp, self._rank, self._cut)
        end.total += 1
        end.done += entry.done
        if not entry.done and len(end.open) < MAX_OPEN:
            end.open += ((way, line),)

    def finish(self) -> RecorderTable:
        """Return the table, within its bounds."""
        self.table._thin()
        return self.table
