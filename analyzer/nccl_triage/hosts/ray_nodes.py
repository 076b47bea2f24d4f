"""The nodes of a Ray cluster, and actors on them."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from nccl_triage.hosts.links import unique_names
from nccl_triage.hosts.ray_access import failures

#: The default folder of a session's logs.
SESSION = "/tmp/ray/session_latest/logs"


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node of a cluster. ``name`` is its host's name, made unique; ``host`` is the host's name in logs.

    ``full`` is the host's name as Ray has it, ``logs`` the folder of its session's logs.
    """

    id: str
    name: str
    host: str
    address: str
    alive: bool
    logs: str = SESSION
    full: str = ""
    gpus: int = 0

    def is_called(self, pattern: str) -> bool:
        """Tell whether a pattern matches the name, host, address or id of this node."""
        return any(fnmatchcase(text, pattern) for text in (self.name, self.host, self.address, self.id))


def nodes_of(told: Sequence[dict[str, Any]]) -> list[RayNode]:
    """Return the nodes of ``ray.nodes()`` by name, the dead ones last."""
    every = sorted(told, key=lambda node: (not node["Alive"], _full(node), node["NodeManagerAddress"], node["NodeID"]))
    hosts = [_short(_full(node)) for node in every]
    return [
        RayNode(
            node["NodeID"],
            name,
            host,
            node["NodeManagerAddress"],
            bool(node["Alive"]),
            _logs(node),
            _full(node),
            int(node.get("Resources", {}).get("GPU", 0)),
        )
        for node, name, host in zip(every, unique_names(hosts), hosts, strict=True)
    ]


def _full(node: dict[str, Any]) -> str:
    return str(node.get("NodeManagerHostname") or node["NodeManagerAddress"])


def _logs(node: dict[str, Any]) -> str:
    """Return the folder of a node's session logs, derived from the path of its raylet's socket."""
    session, found, _ = str(node.get("RayletSocketName") or "").rpartition("/sockets/")
    return f"{session}/logs" if found else SESSION


def _short(host: str) -> str:
    """Return the name of a host without its domain, as NCCL prints it; an address stays whole."""
    return host if ":" in host or host.replace(".", "").isdigit() else host.partition(".")[0]


def departed(asked: Iterable[RayNode], nodes: Iterable[RayNode]) -> list[str]:
    """Return the names of the dead nodes among those asked, unless a living node has their address."""
    living = {node.address for node in nodes if node.alive}
    return [node.name for node in asked if not node.alive and node.address not in living]


@contextlib.contextmanager
def by_value(ray: Any, kind: type) -> Iterator[None]:
    """Pickle the module of a class by value: the nodes have no nccl-triage to import it from."""
    module = sys.modules[kind.__module__]
    ray.cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        ray.cloudpickle.unregister_pickle_by_value(module)


def start_actors(
    ray: Any, kind: type, nodes: Iterable[RayNode], arguments: Sequence[Any] = (), **options: Any
) -> list[Any]:
    """Start an actor of a class on each node; where one cannot start, its first call fails."""
    pinned = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    with by_value(ray, kind):
        # No CPU is asked for: the actors of a stuck job may hold them all.
        actor = ray.remote(kind).options
        return [
            actor(num_cpus=0, scheduling_strategy=pinned(node.id, soft=False), **options).remote(*arguments)
            for node in nodes
        ]


def end_actors(ray: Any, actors: Iterable[Any]) -> None:
    """End actors."""
    for actor in actors:
        with contextlib.suppress(*failures(ray)):
            ray.kill(actor, no_restart=True)
