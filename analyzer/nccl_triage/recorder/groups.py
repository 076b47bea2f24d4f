"""One process group across its dumps: its members, who can be expected in which call, where each rank stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nccl_triage.observations.recorder_table import Cell, GroupKey, GroupProgress, RecorderTable
from nccl_triage.recorder.members import derive as members_of
from nccl_triage.recorder.vote import bits_of, ranks_of

_DEFAULT = ("default_pg", "default")


def is_default(key: GroupKey) -> bool:
    """Tell whether this is the group of all ranks."""
    return key.desc in _DEFAULT or (not key.desc and key.name == "0")


@dataclass(slots=True)
class GroupView:
    """What the dumps tell of one group."""

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
        """Tell whether that all of these ranks are members is derived, not recorded."""
        return not self.stated and not is_default(self.key) and any(rank not in self.standings for rank in ranks)

    def seqs(self) -> list[int]:
        """Return the numbers that all can be asked about, in order."""
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
    """Tell whether the counters of a rank count the collectives of the group: sends share them, on Gloo everything does."""
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
