"""Which nodes of a Ray cluster stand in for the hosts of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nccl_triage.errors import UsageError
from nccl_triage.hosts.links import unique_names
from nccl_triage.hosts.ray_nodes import RayNode
from nccl_triage.verify.placement import CPU_WORLD
from nccl_triage.verify.question import Question


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Which nodes of a cluster to take: those with these ``names``, else the job's own, else as many as the job had.

    ``world`` and ``ranks_per_host`` are the user's; without ``gpus``, the nodes' GPUs do not matter.
    """

    question: Question = field(default_factory=lambda: Question(()))
    names: tuple[str, ...] = ()
    world: int | None = None
    ranks_per_host: int | None = None
    gpus: bool = True

    def among(self, nodes: Sequence[RayNode]) -> list[RayNode]:
        """Return the chosen nodes by their full names, in this order; raises UsageError for an unknown name."""
        chosen = self._chosen([node for node in nodes if node.alive])
        names = unique_names([node.full for node in chosen])
        return [replace(node, name=name) for node, name in zip(chosen, names, strict=True)]

    def _chosen(self, alive: Sequence[RayNode]) -> list[RayNode]:
        if not alive:
            raise UsageError("no node of the Ray cluster is alive", remedy="check the cluster with: ray status")
        if self.names:
            return [self._named(name, alive) for name in self.names]
        own = [node for node in alive if any(_is(node, {name, *self._addresses(name)}) for name in self.question.hosts)]
        order = [*own, *(node for node in alive if node not in own)]
        if self.gpus and any(node.gpus for node in order):
            # The node of the driver is in the log, too, and often has none.
            order = [node for node in order if node.gpus]
        count = self._count(order, len([node for node in own if node in order]))
        taken = order[:count]
        return [node for node in alive if node in taken]

    def _addresses(self, name: str) -> tuple[str, ...]:
        return self.question.addresses.get(name, ())

    def _named(self, name: str, alive: Sequence[RayNode]) -> RayNode:
        found = next((node for node in alive if _is(node, {name, *self._addresses(name)})), None)
        if found is None:
            known = ", ".join(node.full for node in alive[:8])
            raise UsageError(
                "no node of the Ray cluster is called {name}",
                cause="its nodes: {known}",
                remedy="name the hosts as Ray does, by name or address",
                name=name,
                known=known,
            )
        return found

    def _count(self, order: Sequence[RayNode], own: int) -> int:
        """Return how many nodes: all of the job's, and as many as its ranks need; all where nothing is known."""
        ranks = self.world or self.question.world
        each = (
            self.ranks_per_host or max(node.gpus for node in order) if self.gpus else self.ranks_per_host or CPU_WORLD
        )
        needed = -(-ranks // max(1, each)) if ranks else 0
        known = max(own or len(self.question.hosts), needed)
        return min(known, len(order)) if known else len(order)


def _is(node: RayNode, names: set[str]) -> bool:
    return bool(names & {node.full, node.full.split(".")[0], node.address})
