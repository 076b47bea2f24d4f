"""The probes on every node of a Ray cluster at once; nodes that are dead, die or hang are told as such."""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from nccl_triage.doctor import bundle, node
from nccl_triage.doctor.collect import Wish
from nccl_triage.doctor.document import Collected
from nccl_triage.execution.cluster.targets import TargetNode, departed, nodes_of
from nccl_triage.ray_access import Access, by_value, failures, reason

#: Seconds for the probes of a node, and for an actor to start on one that is busy.
PATIENCE, _STARTING = 120.0, 60.0
#: Seconds that one turn waits: Ctrl-C is not heard inside of it. Seconds and tries for a question about the clock.
_TURN, _CLOCK, _TRIES = 0.25, 2.0, 3


def collect(
    address: str | None, wish: Wish, say: Callable[[int, int], None] = lambda done, total: None
) -> list[Collected]:
    """Return what the nodes told, in the order of their names; ``say`` hears how many have answered.

    Raises UsageError when the cluster cannot be joined.
    """
    access = Access(address, "nccl-triage-doctor")
    try:
        nodes = nodes_of(access.ray.nodes())
        gone = set(departed(nodes, nodes))
        living = [one for one in nodes if one.alive]
        dead = [Collected(one.name, problem="Ray calls this node dead") for one in nodes if one.name in gone]
        return [*_ask(access.ray, living, wish, say), *dead]
    finally:
        access.leave()


def _ask(ray: Any, nodes: list[TargetNode], wish: Wish, say: Callable[[int, int], None]) -> list[Collected]:
    actors, pending = _hire(ray, nodes, wish)
    found: dict[str, Collected] = {}
    deadline = time.monotonic() + PATIENCE * wish.patience + 2 * _STARTING
    try:
        while pending and time.monotonic() < deadline:
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=_TURN)
            for reference in ready:
                one = pending.pop(reference)
                found[one.id] = _answer(ray, reference, one)
                say(len(found), len(nodes))
        for one in pending.values():
            found[one.id] = Collected(one.name, problem="no answer")
        for one in nodes:
            if found[one.id].problem is None:
                found[one.id] = replace(found[one.id], ahead=_ahead(ray, actors[one.id]))
    finally:
        for actor in actors.values():
            with contextlib.suppress(*failures(ray)):
                ray.kill(actor, no_restart=True)
    return [found[one.id] for one in nodes]


def _hire(ray: Any, nodes: list[TargetNode], wish: Wish) -> tuple[dict[str, Any], dict[Any, TargetNode]]:
    """Start an actor on every node and its probes; returns the actors by id of the node, and the answers to wait for."""
    pinned = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    program = ray.put(bundle.program())
    asked = json.dumps(asdict(wish))
    actors, pending = {}, {}
    with by_value(ray, node):
        prober = ray.remote(node.Prober)
        for one in nodes:
            # No CPU is asked for: the job's own actors, which may be stuck, may hold them all.
            options = prober.options(num_cpus=0, scheduling_strategy=pinned(one.id, soft=False))
            actors[one.id] = options.remote(program)
            pending[actors[one.id].look.remote(asked, PATIENCE * wish.patience)] = one
    return actors, pending


def _answer(ray: Any, reference: Any, one: TargetNode) -> Collected:
    try:
        told = json.loads(ray.get(reference))
    except failures(ray) as error:  # ValueError among them, of what is no JSON
        return Collected(one.name, problem=reason(error))
    return Collected(one.name, told if isinstance(told, dict) else {})


def _ahead(ray: Any, actor: Any) -> float | None:
    """Return by how many seconds a node's clock is ahead of ours, by the quickest of a few answers."""
    best: tuple[float, float] | None = None
    with contextlib.suppress(*failures(ray)):
        for _ in range(_TRIES):
            before = time.time()
            theirs = ray.get(actor.clock.remote(), timeout=_CLOCK)
            after = time.time()
            if best is None or after - before < best[0]:
                best = after - before, theirs - (before + after) / 2
    return None if best is None else round(best[1], 3)
