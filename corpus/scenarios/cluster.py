"""Jobs over several hosts, and the words by which their failures are recognised."""

from __future__ import annotations

from collections.abc import Mapping

from corpus.scenarios.build import PORT, torchrun
from corpus.scenarios.scenario import Node

#: Seconds that a static rendezvous waits (the default is 15 minutes).
SOON = ("--rdzv-conf", "timeout=25")
ONE, TWO, THREE, FOUR = "gpu-node-01", "gpu-node-02", "gpu-node-03", "gpu-node-04"
TIMED_OUT = r"Timed out waiting \d+ms for (recv|send) operation|Application timeout caused pair closure"
CONNECT_FAILED = r"connectFullMesh failed|[Cc]onnect.*(timeout|timed out|refused|No route|unreachable)"
NO_ROUTE = r"Network is unreachable|No route to host"
RUNNING = "step 6/"

#: Rules for everything but the store's port, by direction.
DATA = f"-p tcp -m multiport ! --ports {PORT}"
DROP_DATA_IN = f"INPUT -i eth0 {DATA} -j DROP"
DROP_DATA_OUT = f"OUTPUT -o eth0 {DATA} -j DROP"
RESET = f"INPUT -i eth0 {DATA} -j REJECT --reject-with tcp-reset"


def cluster(
    job: str,
    *arguments: str,
    counts: tuple[int, ...] = (2, 2),
    tee: bool = True,
    env: Mapping[str, str] | None = None,
    envs: Mapping[int, Mapping[str, str]] | None = None,
    options: tuple[str, ...] = (),
    delays: Mapping[int, float] | None = None,
) -> tuple[Node, ...]:
    """Return one torchrun a host, ``counts`` ranks each; ``envs`` and ``delays`` are for single hosts."""
    return tuple(
        torchrun(
            job,
            *arguments,
            nproc=count,
            host=host,
            nodes=len(counts),
            tee=tee,
            env={**(env or {}), **(envs or {}).get(host, {})},
            options=options,
            delay=(delays or {}).get(host, 0.0),
        )
        for host, count in enumerate(counts)
    )


def interface(name: str) -> dict[str, str]:
    """Return the environment that ties gloo to an interface."""
    return {"GLOO_SOCKET_IFNAME": name}


LONG = ("--steps", "100", "--timeout", "15")
