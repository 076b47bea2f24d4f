"""Which ranks' output is in the input: the silence of a rank means something only if it would have been seen.

In a folder with one file per rank, nothing is known about a rank without a file. The log of a launcher holds the output
of all its ranks, but launchers of other hosts may have more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import cached_property

from nccl_triage.story.view import View

#: Limit of the world size up to which ranks are listed one by one.
MAX_RANKS = 4096


class Presence:
    """The ranks whose output is in the input."""

    def __init__(self, view: View) -> None:
        self._view = view

    @cached_property
    def _sources(self) -> dict[str, set[int]]:
        """The ranks whose output is in each source."""
        found: dict[str, set[int]] = defaultdict(set)
        for event in self._view.events:
            context = event.context
            own = context.rank is not None or context.group_rank is not None or context.local_rank is not None
            rank = self._view.rank(event) if own or context.pid is not None else None
            if rank is not None:
                found[event.source].add(rank)
        return found

    @cached_property
    def of_one_rank(self) -> frozenset[str]:
        """The sources that hold the output of one rank."""
        return frozenset(source for source, ranks in self._sources.items() if len(ranks) == 1)

    @cached_property
    def by_file(self) -> bool:
        """Whether each rank has files of its own, so that ranks without a file are not in the input."""
        return len(self._sources) > 1 and 2 * len(self.of_one_rank) > len(self._sources)

    @cached_property
    def heard(self) -> frozenset[int]:
        """The ranks that printed anything."""
        return frozenset(rank for ranks in self._sources.values() for rank in ranks)

    def covers(self, rank: int) -> bool:
        """Tell whether the output of a rank would be in the input if there were any."""
        return not self.by_file or rank in self.heard

    @cached_property
    def known(self) -> frozenset[int]:
        """The ranks of the job whose output would be in the input."""
        world = self._view.identity.world_size
        every = set(self._view.identity.ranks) | (set(range(world)) if world and world <= MAX_RANKS else set())
        return frozenset(rank for rank in every if self.covers(rank))

    def unheard(self, told: Collection[int] = ()) -> int:
        """Return how many ranks of the job are not in the input, except those that others reported about (``told``)."""
        world = self._view.identity.world_size
        if not self.by_file or not world or world > MAX_RANKS:
            return 0
        return sum(not self.covers(rank) and rank not in told for rank in range(world))

    def stand_out(self, ranks: Collection[int]) -> bool:
        """Tell whether silent ranks stand out: a single rank, or ranks of one host where there are several hosts."""
        if len(ranks) < 2:
            return bool(ranks)
        infos = self._view.identity.ranks
        hosts = {infos[rank].host if rank in infos else None for rank in ranks}
        return len(hosts) == 1 and None not in hosts and len(self._view.identity.hosts) > 1
