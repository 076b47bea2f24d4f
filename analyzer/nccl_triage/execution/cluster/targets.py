"""Resolves arguments on a cluster: ``node:NAME/path`` is read on the nodes of that name, other paths by any node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from nccl_triage.errors import UsageError
from nccl_triage.ray_access import node_key, unique_names

PREFIX = "node:"
#: The default folder of a session's logs.
SESSION = "/tmp/ray/session_latest/logs"
#: The argument for the session logs of all nodes.
EVERY_SESSION = f"{PREFIX}*"


@dataclass(frozen=True, slots=True)
class TargetNode:
    """A node of the cluster. ``name`` is its host's name, made unique; ``host`` is the host's name in logs.

    ``logs`` is the folder of its session's logs.
    """

    id: str
    name: str
    host: str
    address: str
    alive: bool
    logs: str = SESSION

    def is_called(self, pattern: str) -> bool:
        """Tell whether a pattern matches the name, host, address or id of this node."""
        return any(fnmatchcase(text, pattern) for text in (self.name, self.host, self.address, self.id))


def nodes_of(told: Sequence[dict[str, Any]]) -> list[TargetNode]:
    """Return the nodes of ``ray.nodes()`` by name, the dead ones last."""
    alive = sorted((node for node in told if node["Alive"]), key=node_key)
    dead = sorted((node for node in told if not node["Alive"]), key=node_key)
    every = [*alive, *dead]
    hosts = [_short(node_key(node)[0]) for node in every]
    return [
        TargetNode(node["NodeID"], name, host, node["NodeManagerAddress"], bool(node["Alive"]), _logs(node))
        for node, name, host in zip(every, unique_names(hosts), hosts, strict=True)
    ]


def _logs(node: dict[str, Any]) -> str:
    """Return the folder of a node's session logs, derived from the path of its raylet's socket."""
    session, found, _ = str(node.get("RayletSocketName") or "").rpartition("/sockets/")
    return f"{session}/logs" if found else SESSION


def _short(host: str) -> str:
    """Return the name of a host without its domain, as NCCL prints it; an address stays whole."""
    return host if ":" in host or host.replace(".", "").isdigit() else host.partition(".")[0]


def is_on_nodes(argument: str) -> bool:
    """Tell whether an argument names files of nodes."""
    return argument.startswith(PREFIX)


def by_node(arguments: Sequence[str], nodes: Sequence[TargetNode]) -> dict[TargetNode, list[str]]:
    """Return the paths for each node, alive or dead; raises UsageError for a name that no node has."""
    asked: dict[TargetNode, list[str]] = {}
    for argument in arguments:
        pattern, slash, path = argument.removeprefix(PREFIX).partition("/")
        called = [node for node in nodes if node.is_called(pattern or "*")]
        if not called:
            raise UsageError(
                "no node of the Ray cluster is called {name}",
                cause="its nodes are {names}",
                remedy="give a name, an address or a pattern such as 'node:*/var/log/job/*.log'",
                name=pattern,
                names=", ".join(node.name for node in nodes[:16]) + (", .." if len(nodes) > 16 else ""),
            )
        for node in called:
            asked.setdefault(node, []).append(f"/{path}" if slash and path else node.logs)
    return asked


def departed(asked: Sequence[TargetNode], nodes: Sequence[TargetNode]) -> list[str]:
    """Return the names of the dead nodes among those asked, unless a living node has their address."""
    living = {node.address for node in nodes if node.alive}
    return [node.name for node in asked if not node.alive and node.address not in living]
