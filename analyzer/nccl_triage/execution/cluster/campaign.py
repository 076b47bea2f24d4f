"""One scan over a cluster: find what nodes have, share it out, read it, take what was found; go on when nodes are lost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from nccl_triage.execution.cluster import parcel
from nccl_triage.execution.cluster.bulletin import Bulletin
from nccl_triage.execution.cluster.crew import Crew, Member, Reply
from nccl_triage.execution.cluster.listings import Found, shares_of
from nccl_triage.execution.cluster.shares import Share
from nccl_triage.execution.cluster.targets import Node
from nccl_triage.execution.cluster.tree import FAN, Part, Tree
from nccl_triage.execution.reading import Progress, unread
from nccl_triage.ingest.sources import Source
from nccl_triage.observations.store import Interruption, Observations
from nccl_triage.ray_access import failures, reason
from nccl_triage.stopping import ReadingStop

#: Seconds that the others wait for the listings of the slower half of the nodes; these are read nevertheless.
_GRACE = 10.0
#: Seconds for a worker that hangs to hand over what it has.
_RESCUE = 10.0
#: Seconds for a worker to end its scan once somebody asked for the end.
_HALT = 3.0


class Campaign:
    """The state of a scan. ``patience``: seconds without any progress after which a worker counts as hung.

    Once ``stop`` is asked for, nothing more is begun, and what was read until then is the result.
    """

    def __init__(
        self, ray: Any, crew: Crew, bulletin: Bulletin, patience: float, jobs: int, stop: ReadingStop | None = None
    ) -> None:
        self.shares: list[Share] = []
        self._ray, self._crew, self._bulletin = ray, crew, bulletin
        self._patience, self._jobs, self._stop = patience, jobs, stop
        self._asked: dict[Member, tuple[str, ...]] = {}
        self._shares_of: dict[Member, list[Share]] = {}
        self._batch: dict[Member, tuple[Share, list[Source]]] = {}
        self._merging: dict[Member, list[Part]] = {}
        self._hung: dict[Member, str] = {}
        self._tree = Tree()
        self._total = Observations()
        self._ended = False

    def search(self, asked: Mapping[Node, Sequence[str]], since: float | None, links: bool = False) -> None:
        """Have nodes list their logs and share these out; who takes long is not waited for."""
        for member, arguments in zip(self._crew.hire(list(asked)), asked.values(), strict=True):
            self._asked[member] = tuple(arguments)
            member.send("find", list(arguments), since, links, patience=self._patience)
        found: list[Found] = []
        half: float | None = None
        while any(member.call for member in self._crew.members):
            for member, reply in self._crew.turn():
                found += self._listed(member, reply)
            waiting = sum(member.call is not None for member in self._crew.members)
            if half is None and 2 * waiting <= len(asked):
                half = time.monotonic()
            if self._asked_to_end or (half is not None and time.monotonic() - half > _GRACE):
                break
        self._share_out(found)

    def share(self, sources: Sequence[Source], nodes: Sequence[Node]) -> None:
        """Let any of the nodes read sources that all of them see."""
        count = min(len(nodes) * self._jobs, len(sources))
        self._join(Share("", self._crew.hire([nodes[at % len(nodes)] for at in range(count)]), list(sources)))

    def run(self, progress: Progress | None) -> Observations:
        """Read everything and return what was found."""
        while True:
            if self._asked_to_end and not self._ended:
                self._end()
            for member in self._crew.members:
                if member.idle:
                    self._employ(member)
            if not any(member.call for member in self._crew.members):
                break
            for member, reply in self._crew.turn():
                self._hear(member, reply)
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
        return min(total, sum(member.read for member in self._crew.members)), total

    def _end(self) -> None:
        """Begin nothing more, and have those who read come to an end."""
        self._ended = True
        for share in self.shares:
            for source in share.end():
                self._total.absorb(unread(source))
        for member in self._crew.members:
            if member.call == "find":
                self._crew.dismiss(member, "was not waited for")
                self._bulletin.missing(member.node.name, "the reading was ended before it answered")
            elif member.call == "scan":
                member.tell("halt", self._stop.asked if self._stop else None, patience=_HALT)

    def _listed(self, member: Member, reply: Reply) -> list[Found]:
        """Return the listing of a node, if it came."""
        if reply.error is None:
            return [Found(member, self._asked[member], reply.value)]
        self._crew.dismiss(member, reply.error)
        self._bulletin.missing(member.node.name, reply.error)
        return []

    def _share_out(self, found: Sequence[Found]) -> None:
        for share in shares_of(found, self._bulletin):
            # As many workers a node as there are jobs, where there are files for them.
            further = min(self._jobs - 1, max(0, len(share.sources) // len(share.members) - 1))
            share.members += self._crew.hire([member.node for member in share.members for _ in range(further)])
            self._join(share)

    def _join(self, share: Share) -> None:
        self.shares.append(share)
        for member in share.members:
            self._shares_of.setdefault(member, []).append(share)

    def _employ(self, member: Member) -> None:
        """Give a worker what is to be done next, if anything is."""
        shares = self._shares_of.get(member, [])
        for share in shares:
            batch = share.batch(member) if member in share.members else []
            if batch:
                self._batch[member] = share, batch
                member.send("scan", batch, patience=self._patience)
                return
        if any(share.held.get(member) for share in shares):
            member.send("take", patience=self._patience)
            return
        parts = self._tree.next()
        if parts:
            self._merging[member] = parts
            member.send("merge", *[part.reference for part in parts], patience=self._patience)

    def _hear(self, member: Member, reply: Reply) -> None:
        if reply.call == "find":
            self._share_out(self._listed(member, reply))
        elif reply.call == "scan":
            self._scanned(member, reply)
        elif reply.call == "take":
            self._taken(member, reply)
        else:
            parts = self._merging.pop(member)
            if reply.error is None:
                self._tree.merged(parts, reply.findings)
            else:
                self._tree.failed(parts)
                self._crew.dismiss(member, reply.error)

    def _scanned(self, member: Member, reply: Reply) -> None:
        share, batch = self._batch.pop(member)
        if reply.error is None:
            missing, member.read = reply.value
            if missing:
                share.unseen(member, [batch[at] for at in missing])
        elif member.gone is None:
            # Only the scan hangs: what it had read before can still be had.
            self._hung[member] = reply.error
            member.send("take", patience=min(_RESCUE, self._patience))
        else:
            self._abandon(member, reply.error)

    def _taken(self, member: Member, reply: Reply) -> None:
        why = self._hung.pop(member, None)
        if reply.error is None:
            for share in self._shares_of[member]:
                share.release(member, reply.value)
            self._keep(Part(reply.findings, (member.node.name,)))
        left = any(share.held.get(member) for share in self._shares_of[member])
        if reply.error is not None or why is not None or left:
            self._abandon(member, why or reply.error or "no answer")

    def _keep(self, part: Part) -> None:
        """Keep findings where they are, or fetch them at once where that is no burden: their node may be lost."""
        if len(self._crew.members) <= FAN:
            self._receive(part)
        else:
            self._tree.add(part)

    def _receive(self, part: Part) -> None:
        try:
            self._total.absorb(parcel.unpack(self._ray.get(part.reference, timeout=self._patience)))
        except failures(self._ray) as error:
            self._bulletin.lost(part.of, reason(error))
        part.reference = None

    def _abandon(self, member: Member, why: str) -> None:
        """Go on without a worker."""
        self._crew.dismiss(member, why)
        for share in self._shares_of[member]:
            before = sum(map(len, share.lost.values()))
            held = share.abandoned(member, why)
            if held and sum(map(len, share.lost.values())) == before:
                self._bulletin.dropped(member.node.name, why)

    def _tell_losses(self) -> None:
        for share in self.shares:
            if share.waiting:  # everybody said that they do not exist
                share.lost.setdefault("No such file or directory", []).extend(share.waiting)
            for why, sources in share.lost.items():
                if share.name:
                    self._bulletin.missing(share.name, why, len(sources), len(share.sources))
                else:
                    for source in sources:
                        self._bulletin.unread(source.path, why)
