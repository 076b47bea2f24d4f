"""Which worker reads which logs: sources are grouped into shares, so that files that several nodes see are read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from nccl_triage.execution.cluster.node_service import Listing
from nccl_triage.execution.cluster.notes import NodeNotes
from nccl_triage.execution.cluster.workers import WorkerHandle
from nccl_triage.ingest import layouts
from nccl_triage.ingest.sources import Source

#: With several workers: the least bytes of a call, about how many calls a worker gets, the most sources of a call.
_LEAST, _CALLS, _MOST = 1 << 20, 8, 500
#: How often a source may be lost with its worker before it is given up: it may be what kills them.
_TRIES = 2


@dataclass(eq=False, slots=True)
class WorkShare:
    """Sources that each of the workers can read. ``name`` is the node that has them, "" where any node does."""

    name: str
    workers: list[WorkerHandle]
    sources: list[Source]
    #: Sources that no worker has been given, the largest last.
    waiting: list[Source] = field(default_factory=list)
    #: The sources of each worker whose findings have not been taken yet.
    held: dict[WorkerHandle, list[Source]] = field(default_factory=dict)
    #: Sources that no worker could read, by reason.
    lost: dict[str, list[Source]] = field(default_factory=dict)
    #: Total bytes of the sources.
    size: int = 0
    #: Whether no more sources are handed out.
    _ended: bool = False
    _tries: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.size = sum(source.size or 0 for source in self.sources)
        self.waiting = sorted(self.sources, key=lambda source: (source.size or 0, source.path))

    def batch(self, worker: WorkerHandle) -> list[Source]:
        """Return the sources that a worker reads next, the largest first."""
        if not self.waiting:
            return []
        living = sum(one.gone is None for one in self.workers)
        least = max(_LEAST, self.size // (_CALLS * max(1, living))) if living > 1 else self.size
        chosen = [self.waiting.pop()]
        total = chosen[0].size or 0
        while self.waiting and len(chosen) < _MOST and total < least:
            chosen.append(self.waiting.pop())
            total += chosen[-1].size or 0
        self.held.setdefault(worker, []).extend(chosen)
        return chosen

    def release(self, worker: WorkerHandle, done: Sequence[str]) -> None:
        """Note that the findings of these sources were taken from a worker."""
        known = set(done)
        self.held[worker] = [source for source in self.held.get(worker, ()) if source.path not in known]

    def unseen(self, worker: WorkerHandle, sources: Sequence[Source]) -> None:
        """Note that sources do not exist on the worker's node; others may see them."""
        self.release(worker, [source.path for source in sources])
        if self.name == "":
            self.workers.remove(worker)
        self._put_back(sources, "No such file or directory")

    def abandoned(self, worker: WorkerHandle, why: str) -> list[Source]:
        """Put the sources of a lost worker back; returns them."""
        held = self.held.pop(worker, [])
        self._put_back(held, why)
        if not any(one.gone is None for one in self.workers):
            self._give_up(self.waiting, why)
            self.waiting = []
        return held

    def end(self) -> list[Source]:
        """Hand out no more sources; returns those that were not begun."""
        self._ended = True
        left, self.waiting = self.waiting, []
        return left

    def _put_back(self, sources: Sequence[Source], why: str) -> None:
        alive = not self._ended and any(one.gone is None for one in self.workers)
        for source in sources:
            self._tries[source.path] += 1
        again = [source for source in sources if alive and self._tries[source.path] < _TRIES]
        self._give_up([source for source in sources if source not in again], why)
        self.waiting = sorted([*self.waiting, *again], key=lambda source: (source.size or 0, source.path))

    def _give_up(self, sources: Sequence[Source], why: str) -> None:
        if sources:
            self.lost.setdefault(why, []).extend(sources)


@dataclass(eq=False, slots=True)
class NodeListing:
    """The listing of one node, and the arguments that it answers."""

    worker: WorkerHandle
    asked: tuple[str, ...]
    listing: Listing


def shares_of(found: Sequence[NodeListing], notes: NodeNotes) -> list[WorkShare]:
    """Return one share per file system: of a node, of the nodes of one machine, or of nodes that share storage (named "")."""
    groups: dict[object, list[NodeListing]] = {}
    by_likeness: dict[str, list[NodeListing]] = {}
    for one in sorted(found, key=lambda one: one.worker.node.name):
        if not one.listing.sources:
            notes.told(one.worker.node.name, one.listing.notes)
            continue
        machine = (one.listing.machine, one.asked)
        group = groups.get(machine) or by_likeness.get(one.listing.likeness) or []
        group.append(one)
        groups[machine] = by_likeness[one.listing.likeness] = group
    shares = [_share(group, notes) for group in {id(group): group for group in groups.values()}.values()]
    # A rank number that occurs on several hosts is a local rank; only all listings together show it.
    layouts.settle([source.info for share in shares for source in share.sources])
    return shares


def _share(group: Sequence[NodeListing], notes: NodeNotes) -> WorkShare:
    first = group[0]
    notes.told(first.worker.node.name, first.listing.notes)
    sources = first.listing.sources
    alone = len({one.listing.machine for one in group}) == 1
    if alone:
        node = first.worker.node
        for source in sources:
            source.path = source.info.path = f"{node.name}:{source.path}"
            source.info.log = None if source.info.log is None else f"{node.name}:{source.info.log}"
            source.info.host = source.info.host or node.host
    else:
        notes.common([one.worker.node.name for one in group])
    return WorkShare(first.worker.node.name if alone else "", [one.worker for one in group], sources)
