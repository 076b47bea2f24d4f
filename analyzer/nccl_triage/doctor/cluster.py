"""Runs the probes on every node of a Ray cluster at once, as an archive that needs no installation there."""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from nccl_triage import archives
from nccl_triage.doctor import node
from nccl_triage.doctor.collect import ProbeOptions
from nccl_triage.doctor.document import HostAnswer
from nccl_triage.execution.cluster.targets import TargetNode, departed, nodes_of
from nccl_triage.ray_access import Access, by_value, failures, reason


def program() -> bytes:
    """Return the archive: ``python ARCHIVE WISH`` prints what its host shows as JSON."""
    return archives.program("doctor")


#: Seconds for the probes of a node, and for an actor to start on one that is busy.
NODE_TIMEOUT, _STARTING = 120.0, 60.0
#: The most seconds of one wait, in which Ctrl-C is not handled. Seconds and tries for a query of the clock.
_TURN, _CLOCK, _TRIES = 0.25, 2.0, 3
Say = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """What a program printed on a node, or why there is no answer; ``ahead`` are the seconds by which the node's clock is."""

    name: str
    text: str = ""
    problem: str | None = None
    ahead: float | None = None


def collect(address: str | None, wish: ProbeOptions, say: Say = lambda done, total: None) -> list[HostAnswer]:
    """Return the answers of the nodes by name; ``say`` receives how many have answered.

    Raises UsageError when the cluster cannot be joined.
    """
    access = Access(address, "nccl-triage-doctor")
    try:
        outputs = run_everywhere(
            access.ray, program(), json.dumps(asdict(wish)), NODE_TIMEOUT * wish.timeout_factor, say, clocks=True
        )
        return [_answer(one) for one in outputs]
    finally:
        access.leave()


def run_everywhere(
    ray: Any,
    archive: bytes,
    asked: str | Mapping[str, str],
    timeout: float,
    say: Say = lambda done, total: None,
    *,
    clocks: bool = False,
) -> list[NodeOutput]:
    """Run a program, as an archive that Python runs, on nodes of a cluster, and return what it printed; the dead come last.

    ``asked`` is the argument of the program, everywhere or on the nodes of these names only; ``timeout`` are the seconds
    that it may take.
    """
    nodes = nodes_of(ray.nodes())
    gone = set(departed(nodes, nodes))
    living = [one for one in nodes if one.alive and (isinstance(asked, str) or one.name in asked)]
    dead = [NodeOutput(one.name, problem="Ray reports this node dead") for one in nodes if one.name in gone]
    return [*_ask(ray, living, archive, asked, timeout, say, clocks), *dead]


def _ask(
    ray: Any,
    nodes: list[TargetNode],
    archive: bytes,
    asked: str | Mapping[str, str],
    timeout: float,
    say: Say,
    clocks: bool,
) -> list[NodeOutput]:
    actors, pending = _start_actors(ray, nodes, archive, asked, timeout)
    found: dict[str, NodeOutput] = {}
    deadline = time.monotonic() + timeout + 2 * _STARTING
    try:
        while pending and time.monotonic() < deadline:
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=_TURN)
            for reference in ready:
                one = pending.pop(reference)
                found[one.id] = _printed(ray, reference, one)
                say(len(found), len(nodes))
        for one in pending.values():
            found[one.id] = NodeOutput(one.name, problem="no answer")
        for one in nodes if clocks else ():
            if found[one.id].problem is None:
                found[one.id] = replace(found[one.id], ahead=_ahead(ray, actors[one.id]))
    finally:
        for actor in actors.values():
            with contextlib.suppress(*failures(ray)):
                ray.kill(actor, no_restart=True)
    return [found[one.id] for one in nodes]


def _start_actors(
    ray: Any, nodes: list[TargetNode], program: bytes, asked: str | Mapping[str, str], timeout: float
) -> tuple[dict[str, Any], dict[Any, TargetNode]]:
    """Start an actor on every node and the program; returns the actors by id of the node, and the answers to wait for."""
    pinned = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    archive = ray.put(program)
    actors, pending = {}, {}
    with by_value(ray, node):
        prober = ray.remote(node.Prober)
        for one in nodes:
            # No CPU is requested: the actors of a stuck job may hold them all.
            options = prober.options(num_cpus=0, scheduling_strategy=pinned(one.id, soft=False))
            actors[one.id] = options.remote(archive)
            wish = asked if isinstance(asked, str) else asked[one.name]
            pending[actors[one.id].look.remote(wish, timeout)] = one
    return actors, pending


def _printed(ray: Any, reference: Any, one: TargetNode) -> NodeOutput:
    try:
        return NodeOutput(one.name, ray.get(reference))
    except failures(ray) as error:
        return NodeOutput(one.name, problem=reason(error))


def _answer(one: NodeOutput) -> HostAnswer:
    if one.problem is not None:
        return HostAnswer(one.name, problem=one.problem)
    try:
        told = json.loads(one.text)
    except ValueError as error:
        return HostAnswer(one.name, problem=reason(error))
    return HostAnswer(one.name, told if isinstance(told, dict) else {}, ahead=one.ahead)


def _ahead(ray: Any, actor: Any) -> float | None:
    """Return the seconds by which a node's clock is ahead of ours, by the quickest of a few answers."""
    best: tuple[float, float] | None = None
    with contextlib.suppress(*failures(ray)):
        for _ in range(_TRIES):
            before = time.time()
            theirs = ray.get(actor.clock.remote(), timeout=_CLOCK)
            after = time.time()
            if best is None or after - before < best[0]:
                best = after - before, theirs - (before + after) / 2
    return None if best is None else round(best[1], 3)
