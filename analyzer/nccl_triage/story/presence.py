"""Whose silence means anything: a rank is silent only where it could have spoken.

In a folder of the files of ranks, one that has no file may have said anything. In the log of a launcher all ranks of it
speak; on another host there may be more of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import cached_property

from nccl_triage.story.view import View

#: Ranks above this number are never listed one by one.
MAX_RANKS = 4096


class Presence:
    """Which ranks' own words are in the input."""

    def __init__(self, view: View) -> None:
        self._view = view

    @cached_property
    def _sources(self) -> dict[str, set[int]]:
        """Source -> the ranks that speak in it."""
        found: dict[str, set[int]] = defaultdict(set)
        for event in self._view.events:
            context = event.context
            own = context.rank is not None or context.group_rank is not None or context.local_rank is not None
            rank = self._view.rank(event) if own or context.pid is not None else None
            if rank is not None:
                found[event.source].add(rank)
        return found

    @cached_property
    def by_file(self) -> bool:
        """Whether each rank has files of its own: then whoever has none is not in the input."""
        alone = [ranks for ranks in self._sources.values() if len(ranks) == 1]
        return len(self._sources) > 1 and 2 * len(alone) > len(self._sources)

    @cached_property
    def heard(self) -> frozenset[int]:
        """The ranks that speak at all."""
        return frozenset(rank for ranks in self._sources.values() for rank in ranks)

    def covers(self, rank: int) -> bool:
        """Tell whether the words of a rank would be in the input if it had said any."""
        return not self.by_file or rank in self.heard

    @cached_property
    def known(self) -> frozenset[int]:
        """The ranks of the job whose words would be in the input."""
        world = self._view.identity.world_size
        every = set(self._view.identity.ranks) | (set(range(world)) if world and world <= MAX_RANKS else set())
        return frozenset(rank for rank in every if self.covers(rank))

    def unheard(self, told: Collection[int] = ()) -> int:
        """Return how many ranks of the job are not in the input, besides those that others told of."""
        world = self._view.identity.world_size
        if not self.by_file or not world or world > MAX_RANKS:
            return 0
        return sum(not self.covers(rank) and rank not in told for rank in range(world))

    def stand_out(self, ranks: Collection[int]) -> bool:
        """Tell whether silent ranks stand out: one alone, or those of one host among several; else none may be named."""
        if len(ranks) < 2:
            return bool(ranks)
        infos = self._view.identity.ranks
        hosts = {infos[rank].host if rank in infos else None for rank in ranks}
        return len(hosts) == 1 and None not in hosts and len(self._view.identity.hosts) > 1
