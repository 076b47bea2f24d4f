"""Runs the probes on every node of a Ray cluster at once, as an archive that needs no installation there."""

from __future__ import annotations

import contextlib
import importlib
import importlib.resources
import io
import json
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from nccl_triage import archives
from nccl_triage.doctor import node
from nccl_triage.doctor.collect import ProbeOptions
from nccl_triage.doctor.document import HostAnswer
from nccl_triage.execution.cluster.targets import TargetNode, departed, nodes_of
from nccl_triage.ray_access import Access, by_value, failures, reason

_MAIN = "import sys\nfrom nccl_triage.doctor.collect import main\nsys.exit(main())\n"


def program() -> bytes:
    """Return the archive: ``python ARCHIVE WISH`` prints what its host shows as JSON."""
    made = io.BytesIO()
    root = importlib.resources.files("nccl_triage")
    with zipfile.ZipFile(made, "w") as archive:
        archives.add_text(archive, "__main__.py", _MAIN)
        archives.add_sources(archive, root, "nccl_triage")
        archives.add_sources(archive, root / "doctor", "nccl_triage/doctor", below=True)
        archives.add_sources(archive, root / "verify", "nccl_triage/verify")
        archives.add_sources(archive, root / "verify" / "worker", "nccl_triage/verify/worker")
    return made.getvalue()


#: Seconds for the probes of a node, and for an actor to start on one that is busy.
NODE_TIMEOUT, _STARTING = 120.0, 60.0
#: The most seconds of one wait, in which Ctrl-C is not handled. Seconds and tries for a query of the clock.
_TURN, _CLOCK, _TRIES = 0.25, 2.0, 3


def collect(
    address: str | None, wish: ProbeOptions, say: Callable[[int, int], None] = lambda done, total: None
) -> list[HostAnswer]:
    """Return the answers of the nodes by name; ``say`` receives how many have answered.

    Raises UsageError when the cluster cannot be joined.
    """
    access = Access(address, "nccl-triage-doctor")
    try:
        nodes = nodes_of(access.ray.nodes())
        gone = set(departed(nodes, nodes))
        living = [one for one in nodes if one.alive]
        dead = [HostAnswer(one.name, problem="Ray reports this node dead") for one in nodes if one.name in gone]
        return [*_ask(access.ray, living, wish, say), *dead]
    finally:
        access.leave()


def _ask(ray: Any, nodes: list[TargetNode], wish: ProbeOptions, say: Callable[[int, int], None]) -> list[HostAnswer]:
    actors, pending = _start_actors(ray, nodes, wish)
    found: dict[str, HostAnswer] = {}
    deadline = time.monotonic() + NODE_TIMEOUT * wish.timeout_factor + 2 * _STARTING
    try:
        while pending and time.monotonic() < deadline:
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=_TURN)
            for reference in ready:
                one = pending.pop(reference)
                found[one.id] = _answer(ray, reference, one)
                say(len(found), len(nodes))
        for one in pending.values():
            found[one.id] = HostAnswer(one.name, problem="no answer")
        for one in nodes:
            if found[one.id].problem is None:
                found[one.id] = replace(found[one.id], ahead=_ahead(ray, actors[one.id]))
    finally:
        for actor in actors.values():
            with contextlib.suppress(*failures(ray)):
                ray.kill(actor, no_restart=True)
    return [found[one.id] for one in nodes]


def _start_actors(
    ray: Any, nodes: list[TargetNode], wish: ProbeOptions
) -> tuple[dict[str, Any], dict[Any, TargetNode]]:
    """Start an actor on every node and its probes; returns the actors by id of the node, and the answers to wait for."""
    pinned = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    archive = ray.put(program())
    asked = json.dumps(asdict(wish))
    actors, pending = {}, {}
    with by_value(ray, node):
        prober = ray.remote(node.Prober)
        for one in nodes:
            # No CPU is requested: the actors of a stuck job may hold them all.
            options = prober.options(num_cpus=0, scheduling_strategy=pinned(one.id, soft=False))
            actors[one.id] = options.remote(archive)
            pending[actors[one.id].look.remote(asked, NODE_TIMEOUT * wish.timeout_factor)] = one
    return actors, pending


def _answer(ray: Any, reference: Any, one: TargetNode) -> HostAnswer:
    try:
        told = json.loads(ray.get(reference))
    except failures(ray) as error:  # ValueError among them, of what is no JSON
        return HostAnswer(one.name, problem=reason(error))
    return HostAnswer(one.name, told if isinstance(told, dict) else {})


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
