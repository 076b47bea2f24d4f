"""Short forms in which the scenario modules write their processes."""

from __future__ import annotations

from collections.abc import Mapping

from corpus.scenarios.network import HOSTS
from corpus.scenarios.scenario import Node

PORT = 29500


def torchrun(
    job: str,
    *arguments: str,
    nproc: int = 4,
    host: int = 0,
    nodes: int = 1,
    address: str = "10.0.0.1",
    port: int = PORT,
    tee: bool = True,
    env: Mapping[str, str] | None = None,
    prelude: str = "",
    delay: float = 0.0,
    options: tuple[str, ...] = (),
) -> Node:
    """Return a host that runs ``jobs/JOB`` under torchrun.

    ``tee``: per-rank log files and a console whose lines carry ``[default3]:``; without it the plain console.
    """
    command = ["{bin}/torchrun", "--nproc-per-node", str(nproc)]
    if nodes > 1:
        command += ["--nnodes", str(nodes), "--node-rank", str(host), "--master-addr", address]
    command += ["--master-port", str(port)]
    if tee:
        command += ["--log-dir", "{logs}" + (f"/{HOSTS[host]}" if nodes > 1 else ""), "--tee", "3"]
    command += [*options, "{jobs}/" + job, *arguments]
    return Node(tuple(command), host=host, env=dict(env or {}), prelude=prelude, delay=delay)


def torchrun_c10d(
    job: str,
    *arguments: str,
    nproc: int = 2,
    host: int = 0,
    nodes: str = "2",
    endpoint: str = "gpu-node-01:29400",
    run_id: str = "pretrain-7b",
    conf: str = "join_timeout=25",
    env: Mapping[str, str] | None = None,
    delay: float = 0.0,
    tee: bool = True,
) -> Node:
    """Return a host that runs ``jobs/JOB`` under torchrun with the c10d rendezvous (``nodes``: "2" or "2:4")."""
    command = ["{bin}/torchrun", "--nproc-per-node", str(nproc), "--nnodes", nodes, "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", endpoint, "--rdzv-id", run_id, "--rdzv-conf", conf]
    if tee:
        command += ["--log-dir", "{logs}/" + HOSTS[host], "--tee", "3"]
    command += ["{jobs}/" + job, *arguments]
    return Node(tuple(command), host=host, env=dict(env or {}), delay=delay)


def bare_ranks(
    job: str,
    *arguments: str,
    world_size: int,
    hosts: int = 1,
    env: Mapping[str, str] | None = None,
    missing: tuple[int, ...] = (),
) -> tuple[Node, ...]:
    """Return one process a rank without a launcher, labelled ``3: `` as ``srun --label`` does.

    Nobody kills the survivors of a dead rank here, as under srun without --kill-on-bad-exit.
    """
    local = world_size // hosts
    nodes = []
    for rank in range(world_size):
        if rank in missing:
            continue
        variables = {
            "RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank % local), "LOCAL_WORLD_SIZE": str(local),
            "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": str(PORT), **(env or {}),
        }  # fmt: skip
        nodes.append(
            Node(("{python}", "{jobs}/" + job, *arguments), host=rank // local, env=variables, label=f"{rank}: ")
        )
    return tuple(nodes)
