"""A process group across its dumps: its members, the ranks expected in each call, and how far each rank came.

Some dumps do not list the members of a group, such as Gloo's (PyTorch 2.13). A rank that recorded a call in a group belongs
to it. Two numbers tell more: PyTorch names the groups of a job 0, 1, 2, .. in the order in which all ranks create them
(``distributed_c10d._process_group_name``), and each process counts the groups that it belongs to (``pg_id``;
ProcessGroupGloo ``local_id_``). Between two groups that a rank is known to be in, it is in all others where both numbers
advanced by the same amount, and in none where its own advanced by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from nccl_triage.observations.recorder_table import Cell, GroupKey, GroupProgress, RecorderTable
from nccl_triage.recorder.vote import bits_of, ranks_of, signature

#: Digits of the highest name of a group that was counted.
_MAX_DIGITS = 6
#: Groups whose further members are looked for, and ranks of a job that may be among them.
_MAX_GROUPS, _MAX_WORLD = 64, 8192


@dataclass(slots=True)
class Members:
    """The members of groups that no dump lists: those that are certain, and those that are possible."""

    known: dict[GroupKey, set[int]] = field(default_factory=dict)
    possible: dict[GroupKey, set[int]] = field(default_factory=dict)


def members_of(table: RecorderTable, world: frozenset[int]) -> Members:
    """Return the members of the groups that no dump lists. ``world``: all known ranks."""
    found = Members()
    unstated = {key for key, _ in table.standings if not table.groups.get(key)}
    if not unstated:
        return found
    numbers: dict[int, set[GroupKey]] = {}
    of_rank: dict[int, dict[int, int]] = {}
    for (key, rank), standing in table.standings.items():
        number = _number(key)
        if number is not None and standing.number >= 0:
            of_rank.setdefault(rank, {})[number] = standing.number
        if key in unstated:
            found.known.setdefault(key, set()).add(rank)
            numbers.setdefault(-1 if number is None else number, set()).add(key)
    keys = {number: next(iter(named)) for number, named in numbers.items() if number >= 0 and len(named) == 1}
    absent: dict[GroupKey, set[int]] = {}
    for rank, own in of_rank.items():
        for number, belongs in _between(own, sorted(keys)):
            (found.known if belongs else absent).setdefault(keys[number], set()).add(rank)
    for key in sorted(found.known)[: _MAX_GROUPS if len(world) <= _MAX_WORLD else 0]:
        found.possible[key] = set(world) - found.known[key] - absent.get(key, set())
    return found


def _number(key: GroupKey) -> int | None:
    counted = key.name.isascii() and key.name.isdigit() and len(key.name) <= _MAX_DIGITS
    return int(key.name) if counted else None


def _between(own: Mapping[int, int], wanted: list[int]) -> Iterator[tuple[int, bool]]:
    """Yield the groups without records of a rank that it is certainly in, or certainly not in."""
    for (low, first), (high, last) in pairwise([(-1, -1), *sorted(own.items())]):
        belongs = high - low == last - first
        if belongs or last - first == 1:
            for number in wanted[bisect_right(wanted, low) : bisect_left(wanted, high)]:
                yield number, belongs


_DEFAULT = ("default_pg", "default")


def is_default(key: GroupKey) -> bool:
    """Tell whether this is the group of all ranks."""
    return key.desc in _DEFAULT or (not key.desc and key.name == "0")


@dataclass(slots=True)
class GroupView:
    """One group as its dumps show it."""

    key: GroupKey
    #: Its members (those that were seen in it or must be where no dump tells), and whether a dump tells.
    members: tuple[int, ...]
    stated: bool
    standings: dict[int, GroupProgress]
    #: Ranks that may be members, where no dump tells.
    possible: frozenset[int] = frozenset()
    #: Members whose dumps can show whether they made a call of a number from ``window`` on, as bits.
    expected: int = 0
    window: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of members, 0 where no dump tells."""
        return len(self.members) if self.stated else 0

    def guessed(self, ranks: Iterable[int]) -> bool:
        """Tell whether the membership of any of these ranks is derived, not recorded."""
        return not self.stated and not is_default(self.key) and any(rank not in self.standings for rank in ranks)

    def seqs(self) -> list[int]:
        """Return the sequence numbers that all dumps cover, in order."""
        return sorted(seq for seq in self.cells if seq >= self.window)

    def absent_from(self, seq: int) -> int:
        """Return the members (as bits) whose dumps show that they never made a call."""
        lacking = self.expected & ~self.cells[seq].ranks
        return bits_of(rank for rank in ranks_of(lacking) if not self._passed(rank, seq))

    def _passed(self, rank: int, seq: int) -> bool:
        standing = self.standings.get(rank)
        if standing is None:
            return False
        return standing.last_seq >= seq or (comparable(standing) and standing.enqueued >= seq)


def comparable(standing: GroupProgress) -> bool:
    """Tell whether the counters of a rank count only collectives: sends may share them, and with Gloo all calls do."""
    return not standing.p2p and not standing.counts_all and standing.enqueued >= standing.last_seq


def views(table: RecorderTable) -> Iterator[GroupView]:
    """Yield every group that has members, in the order of names."""
    world = max(table.groups.values(), key=len, default=())
    dumped = bits_of(rank for (rank,) in table.dumps)
    derived = members_of(table, frozenset({*world, *ranks_of(dumped)}))
    by_group: dict[GroupKey, dict[int, GroupProgress]] = {}
    for (key, rank), standing in table.standings.items():
        by_group.setdefault(key, {})[rank] = standing
    for key in sorted(by_group):
        standings = by_group[key]
        members = table.groups.get(key, ())
        stated = bool(members)
        if not members and is_default(key):
            members, stated = tuple(sorted({*world, *ranks_of(dumped)})), bool(world)
        elif not members:
            members = tuple(sorted(derived.known[key]))
        view = GroupView(key, members, stated, standings, cells=table.calls.get(key, {}))
        if not stated and not is_default(key):
            view.possible = frozenset(derived.possible.get(key, ()))
        for rank in ranks_of(bits_of(members) & dumped):
            found = standings.get(rank)
            if found is not None and found.first_seq >= 0:
                view.window = max(view.window, found.first_seq)
                view.expected |= 1 << rank
            elif not table.dumps[(rank,)].cut and (found is None or not found.p2p):
                # Nothing was overwritten: it never made a call in this group.
                view.expected |= 1 << rank
        yield view


#: The calls compared after the first difference, and the greatest shift.
_AHEAD, _SHIFT = 24, 8
_Row = list[tuple[object, ...] | None]


def _calls(view: GroupView, rank: int, start: int) -> _Row:
    found: _Row = []
    for seq in range(start, start + _AHEAD):
        cell = view.cells.get(seq)
        ways = [signature(way) for way, callers in cell.ways.items() if callers.ranks >> rank & 1] if cell else []
        found.append(tuple(sorted(ways, key=repr)) or None)
    while found and found[-1] is None:
        found.pop()
    return found


def _shifted(late: _Row, early: _Row, by: int) -> bool:
    """Tell whether one row of calls equals the other without its first calls."""
    pairs = list(zip(late, early[by:], strict=False))
    return bool(pairs) and all(one == two for one, two in pairs)


def order_of_calls(view: GroupView, seq: int, odd: int, common: int) -> tuple[str, int]:
    """Return how the odd rank's order differs (skipped, inserted, exchanged, or "" if unknown), and by how many calls."""
    mine, theirs = _calls(view, odd, seq), _calls(view, common, seq)
    if len(mine) > 1 and len(theirs) > 1 and mine[0] == theirs[1] and mine[1] == theirs[0]:
        return "exchanged", 2
    for by in range(1, _SHIFT + 1):
        skipped, inserted = _shifted(mine, theirs, by), _shifted(theirs, mine, by)
        if skipped != inserted:
            return ("skipped" if skipped else "inserted"), by
    return "", 0
