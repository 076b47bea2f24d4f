"""Who reads which logs: shares of sources that one node or several can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from nccl_triage.execution.cluster.crew import Member
from nccl_triage.ingest.sources import Source

#: Bytes of a call at least, where several workers share; calls a worker gets about then; sources of a call at most.
_LEAST, _CALLS, _MOST = 1 << 20, 8, 500
#: How often a source may be lost with its worker before nobody tries again: it may be the reason.
_TRIES = 2


@dataclass(eq=False, slots=True)
class Share:
    """Sources that each of the members can read. ``name`` is that of the node that has them, "" for any node."""

    name: str
    members: list[Member]
    sources: list[Source]
    #: Those that nobody reads yet, the largest last.
    waiting: list[Source] = field(default_factory=list)
    #: Who reads or has read a source whose findings have not been taken yet.
    held: dict[Member, list[Source]] = field(default_factory=dict)
    #: Sources that nobody could read, and why.
    lost: dict[str, list[Source]] = field(default_factory=dict)
    #: Bytes of all sources.
    size: int = 0
    #: Whether nothing is given out any more.
    _ended: bool = False
    _tries: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.size = sum(source.size or 0 for source in self.sources)
        self.waiting = sorted(self.sources, key=lambda source: (source.size or 0, source.path))

    def batch(self, member: Member) -> list[Source]:
        """Return sources for a member to read next, the largest first."""
        if not self.waiting:
            return []
        crew = sum(one.gone is None for one in self.members)
        least = max(_LEAST, self.size // (_CALLS * max(1, crew))) if crew > 1 else self.size
        chosen = [self.waiting.pop()]
        total = chosen[0].size or 0
        while self.waiting and len(chosen) < _MOST and total < least:
            chosen.append(self.waiting.pop())
            total += chosen[-1].size or 0
        self.held.setdefault(member, []).extend(chosen)
        return chosen

    def release(self, member: Member, done: Sequence[str]) -> None:
        """Note that the findings of sources were taken from a member."""
        known = set(done)
        self.held[member] = [source for source in self.held.get(member, ()) if source.path not in known]

    def unseen(self, member: Member, sources: Sequence[Source]) -> None:
        """Note that sources do not exist where the member is: others may see them."""
        self.release(member, [source.path for source in sources])
        if self.name == "":
            self.members.remove(member)
        self._put_back(sources, "No such file or directory")

    def abandoned(self, member: Member, why: str) -> list[Source]:
        """Let others read what a member that is gone held; returns the sources."""
        held = self.held.pop(member, [])
        self._put_back(held, why)
        if not any(one.gone is None for one in self.members):
            self._give_up(self.waiting, why)
            self.waiting = []
        return held

    def end(self) -> list[Source]:
        """Give no more sources out; returns those that nobody has begun to read."""
        self._ended = True
        left, self.waiting = self.waiting, []
        return left

    def _put_back(self, sources: Sequence[Source], why: str) -> None:
        alive = not self._ended and any(one.gone is None for one in self.members)
        for source in sources:
            self._tries[source.path] += 1
        again = [source for source in sources if alive and self._tries[source.path] < _TRIES]
        self._give_up([source for source in sources if source not in again], why)
        self.waiting = sorted([*self.waiting, *again], key=lambda source: (source.size or 0, source.path))

    def _give_up(self, sources: Sequence[Source], why: str) -> None:
        if sources:
            self.lost.setdefault(why, []).extend(sources)
