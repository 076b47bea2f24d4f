"""Options that say where logs are read: on this machine, or on the nodes of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nccl_triage.errors import UsageError

if TYPE_CHECKING:
    from nccl_triage.execution.engines import Engine
    from nccl_triage.stopping import ReadingStop


def options(function: Any) -> Any:
    """Add the options to a command."""
    further = [
        click.option(
            "--engine",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            help="Where logs are read: ray has the nodes of a Ray cluster read 'node:*/PATTERN', each its own files, and "
            "share out other paths, which all of them must see.",
        ),
        click.option(
            "--ray-session",
            is_flag=True,
            help="Read the logs of the running Ray session on every node: --engine ray 'node:*'.",
        ),
        click.option("--ray-address", metavar="ADDRESS", help="The Ray cluster (default: auto)."),
        click.option(
            "--node-timeout",
            type=click.FloatRange(1, 86400),
            default=120.0,
            show_default=True,
            metavar="SECONDS",
            help="Give a node of the cluster up when it makes no progress for so long.",
        ),
    ]
    for option in reversed(further):
        function = option(function)
    return function


def chosen(
    paths: tuple[str, ...], given: dict[str, Any], jobs: int | None, stop: ReadingStop, links: bool
) -> tuple[tuple[str, ...], Engine | None]:
    """Take the options out of ``given``; return what is to be read, and the engine if it is not this machine.

    ``stop`` may end the reading early; ``links`` are followed out of folders.
    """
    engine, session = given.pop("engine"), given.pop("ray_session")
    address, timeout = given.pop("ray_address"), given.pop("node_timeout")
    if engine == "local" and not session:
        _refuse_nodes(paths)
        return paths, None
    from nccl_triage.execution.cluster import targets
    from nccl_triage.execution.cluster.engine import RayEngine

    if session:
        paths = (*paths, targets.EVERY_SESSION)
    if not paths:
        raise UsageError(
            "there is nothing to read on the cluster",
            remedy="add --ray-session, or name logs such as 'node:*/var/log/job' or a folder that all nodes see",
        )
    return paths, RayEngine(address, jobs or 1, timeout, stop=stop, links=links)


def refuse_while_following(engine: Engine | None) -> None:
    """Raise UsageError for a cluster: logs that grow are followed by who sees them grow."""
    if engine is not None:
        raise UsageError(
            "--engine ray does not go with --follow",
            remedy="follow the driver's log, or files that all nodes share, on this machine",
        )


def _refuse_nodes(paths: tuple[str, ...]) -> None:
    """Raise UsageError for files of nodes, which this machine does not have."""
    import os

    for path in paths:
        if path.startswith("node:") and not os.path.lexists(path):
            raise UsageError("{path} lies on nodes of a cluster", remedy="add --engine ray", path=path)
