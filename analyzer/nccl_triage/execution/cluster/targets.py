"""Resolves arguments on a cluster: ``node:NAME/path`` is read on the nodes of that name, other paths by any node."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_triage.errors import UsageError
from nccl_triage.hosts.ray_nodes import RayNode

PREFIX = "node:"
#: The argument for the session logs of all nodes.
EVERY_SESSION = f"{PREFIX}*"


def is_on_nodes(argument: str) -> bool:
    """Tell whether an argument names files of nodes."""
    return argument.startswith(PREFIX)


def by_node(arguments: Sequence[str], nodes: Sequence[RayNode]) -> dict[RayNode, list[str]]:
    """Return the paths for each node, alive or dead; raises UsageError for a name that no node has."""
    asked: dict[RayNode, list[str]] = {}
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
