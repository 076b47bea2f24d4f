"""One scan over a cluster: list the logs of the nodes, share them out, read and merge them, and go on when nodes are lost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nccl_triage.execution.cluster import codec
from nccl_triage.execution.cluster.notes import NodeNotes
from nccl_triage.execution.cluster.shares import NodeListing, WorkShare, shares_of
from nccl_triage.execution.cluster.workers import Reply, WorkerHandle, Workers
from nccl_triage.execution.reading import Progress, unread
from nccl_triage.hosts.ray_access import failures, reason
from nccl_triage.hosts.ray_nodes import RayNode
from nccl_triage.ingest.sources import Source
from nccl_triage.observations.store import Interruption, Observations
from nccl_triage.stopping import ReadingStop

#: How many parts one merge takes, and the most that the driver receives while workers can merge them.
FAN = 16


@dataclass(eq=False, slots=True)
class MergePart:
    """Findings in the object store (``reference``) of the nodes ``of``; ``level`` counts the merges behind it."""

    reference: Any
    of: tuple[str, ...]
    level: int = 0
    #: How often a merge with it failed.
    failed: int = 0


class MergeTree:
    """The parts that wait to be merged or received."""

    def __init__(self) -> None:
        self.parts: list[MergePart] = []

    def add(self, part: MergePart) -> None:
        """Add a part."""
        self.parts.append(part)

    def next(self) -> list[MergePart]:
        """Remove and return the parts of the next merge, the least merged first; none when few are left."""
        mergeable = sorted((part for part in self.parts if not part.failed), key=lambda part: part.level)
        if len(mergeable) <= FAN:
            return []
        chosen = mergeable[:FAN]
        self.parts = [part for part in self.parts if part not in chosen]
        return chosen

    def merged(self, parts: list[MergePart], reference: Any) -> None:
        """Add the result of a merge."""
        level = 1 + max(part.level for part in parts)
        self.parts.append(MergePart(reference, tuple(name for part in parts for name in part.of), level))

    def failed(self, parts: list[MergePart]) -> None:
        """Put the parts of a failed merge back; the driver receives each by itself, since one may be lost."""
        for part in parts:
            part.failed += 1
        self.parts += parts


#: Seconds to wait for the listings of the slower half of the nodes before reading starts; later ones still count.
_GRACE = 10.0
#: Seconds for a hung worker to hand over its findings.
_RESCUE = 10.0
#: Seconds for a worker to end its scan after a stop request.
_HALT = 3.0


class ClusterScan:
    """The state of a scan. After ``timeout`` seconds without progress a worker counts as hung.

    After a stop request nothing more is begun, and what was read until then is the result.
    """

    def __init__(
        self, ray: Any, workers: Workers, notes: NodeNotes, timeout: float, jobs: int, stop: ReadingStop | None = None
    ) -> None:
        self.shares: list[WorkShare] = []
        self._ray, self._workers, self._notes = ray, workers, notes
        self._timeout, self._jobs, self._stop = timeout, jobs, stop
        self._asked: dict[WorkerHandle, tuple[str, ...]] = {}
        self._shares_of: dict[WorkerHandle, list[WorkShare]] = {}
        self._batch: dict[WorkerHandle, tuple[WorkShare, list[Source]]] = {}
        self._merging: dict[WorkerHandle, list[MergePart]] = {}
        self._hung: dict[WorkerHandle, str] = {}
        self._tree = MergeTree()
        self._total = Observations()
        self._ended = False

    def search(self, asked: Mapping[RayNode, Sequence[str]], since: float | None, links: bool = False) -> None:
        """Have nodes list their logs and share these out, without waiting for slow nodes."""
        for worker, arguments in zip(self._workers.start(list(asked)), asked.values(), strict=True):
            self._asked[worker] = tuple(arguments)
            worker.send("find", list(arguments), since, links, timeout=self._timeout)
        found: list[NodeListing] = []
        half: float | None = None
        while any(worker.call for worker in self._workers.handles):
            for worker, reply in self._workers.wait():
                found += self._listed(worker, reply)
            waiting = sum(worker.call is not None for worker in self._workers.handles)
            if half is None and 2 * waiting <= len(asked):
                half = time.monotonic()
            if self._asked_to_end or (half is not None and time.monotonic() - half > _GRACE):
                break
        self._share_out(found)

    def share(self, sources: Sequence[Source], nodes: Sequence[RayNode]) -> None:
        """Let any of the nodes read sources on shared storage."""
        count = min(len(nodes) * self._jobs, len(sources))
        self._join(WorkShare("", self._workers.start([nodes[at % len(nodes)] for at in range(count)]), list(sources)))

    def run(self, progress: Progress | None) -> Observations:
        """Read all shares and return the observations."""
        while True:
            if self._asked_to_end and not self._ended:
                self._end()
            for worker in self._workers.handles:
                if worker.idle:
                    self._assign(worker)
            if not any(worker.call for worker in self._workers.handles):
                break
            for worker, reply in self._workers.wait():
                self._handle_reply(worker, reply)
            if progress is not None:
                progress(*self._reached())
        for part in self._tree.parts:
            self._receive(part)
        self._tell_losses()
        if self._stop is not None and self._stop.asked is not None and self._ended:
            self._total.interruption = Interruption(self._stop.asked, *self._reached())
        return self._total

    @property
    def _asked_to_end(self) -> bool:
        return self._stop is not None and self._stop.asked is not None

    def _reached(self) -> tuple[int, int]:
        """Return the bytes read so far, and all of them."""
        total = sum(share.size for share in self.shares)
        return min(total, sum(worker.read for worker in self._workers.handles)), total

    def _end(self) -> None:
        """Begin nothing more, and have running scans end."""
        self._ended = True
        for share in self.shares:
            for source in share.end():
                self._total.absorb(unread(source))
        for worker in self._workers.handles:
            if worker.call == "find":
                self._workers.stop(worker, "was not waited for")
                self._notes.missing(worker.node.name, "the reading was ended before it answered")
            elif worker.call == "scan":
                worker.tell("halt", self._stop.asked if self._stop else None, timeout=_HALT)

    def _listed(self, worker: WorkerHandle, reply: Reply) -> list[NodeListing]:
        """Return the listing of a node if it succeeded."""
        if reply.error is None:
            return [NodeListing(worker, self._asked[worker], reply.value)]
        self._workers.stop(worker, reply.error)
        self._notes.missing(worker.node.name, reply.error)
        return []

    def _share_out(self, found: Sequence[NodeListing]) -> None:
        for share in shares_of(found, self._notes):
            # As many workers a node as there are jobs, where there are files for them.
            further = min(self._jobs - 1, max(0, len(share.sources) // len(share.workers) - 1))
            share.workers += self._workers.start([worker.node for worker in share.workers for _ in range(further)])
            self._join(share)

    def _join(self, share: WorkShare) -> None:
        self.shares.append(share)
        for worker in share.workers:
            self._shares_of.setdefault(worker, []).append(share)

    def _assign(self, worker: WorkerHandle) -> None:
        """Give a worker its next call, if there is work for it."""
        shares = self._shares_of.get(worker, [])
        for share in shares:
            batch = share.batch(worker) if worker in share.workers else []
            if batch:
                self._batch[worker] = share, batch
                worker.send("scan", batch, timeout=self._timeout)
                return
        if any(share.held.get(worker) for share in shares):
            worker.send("take", timeout=self._timeout)
            return
        parts = self._tree.next()
        if parts:
            self._merging[worker] = parts
            worker.send("merge", *[part.reference for part in parts], timeout=self._timeout)

    def _handle_reply(self, worker: WorkerHandle, reply: Reply) -> None:
        if reply.call == "find":
            self._share_out(self._listed(worker, reply))
        elif reply.call == "scan":
            self._scanned(worker, reply)
        elif reply.call == "take":
            self._taken(worker, reply)
        else:
            parts = self._merging.pop(worker)
            if reply.error is None:
                self._tree.merged(parts, reply.findings)
            else:
                self._tree.failed(parts)
                self._workers.stop(worker, reply.error)

    def _scanned(self, worker: WorkerHandle, reply: Reply) -> None:
        share, batch = self._batch.pop(worker)
        if reply.error is None:
            missing, worker.read = reply.value
            if missing:
                share.unseen(worker, [batch[at] for at in missing])
        elif worker.gone is None:
            # Only the scan hangs: earlier findings can still be taken.
            self._hung[worker] = reply.error
            worker.send("take", timeout=min(_RESCUE, self._timeout))
        else:
            self._abandon(worker, reply.error)

    def _taken(self, worker: WorkerHandle, reply: Reply) -> None:
        why = self._hung.pop(worker, None)
        if reply.error is None:
            for share in self._shares_of[worker]:
                share.release(worker, reply.value)
            self._keep(MergePart(reply.findings, (worker.node.name,)))
        left = any(share.held.get(worker) for share in self._shares_of[worker])
        if reply.error is not None or why is not None or left:
            self._abandon(worker, why or reply.error or "no answer")

    def _keep(self, part: MergePart) -> None:
        """Leave findings in the object store; on a small cluster receive them at once, since their node may be lost."""
        if len(self._workers.handles) <= FAN:
            self._receive(part)
        else:
            self._tree.add(part)

    def _receive(self, part: MergePart) -> None:
        try:
            self._total.absorb(codec.unpack(self._ray.get(part.reference, timeout=self._timeout)))
        except failures(self._ray) as error:
            self._notes.lost(part.of, reason(error))
        part.reference = None

    def _abandon(self, worker: WorkerHandle, why: str) -> None:
        """Stop a worker and let others read its sources."""
        self._workers.stop(worker, why)
        for share in self._shares_of[worker]:
            before = sum(map(len, share.lost.values()))
            held = share.abandoned(worker, why)
            if held and sum(map(len, share.lost.values())) == before:
                self._notes.dropped(worker.node.name, why)

    def _tell_losses(self) -> None:
        for share in self.shares:
            if share.waiting:  # no worker found them
                share.lost.setdefault("No such file or directory", []).extend(share.waiting)
            for why, sources in share.lost.items():
                if share.name:
                    self._notes.missing(share.name, why, len(sources), len(share.sources))
                else:
                    for source in sources:
                        self._notes.unread(source.path, why)
