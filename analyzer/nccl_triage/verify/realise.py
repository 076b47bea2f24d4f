"""Fill into a planned run what only a live session knows: the store's address, and interfaces for Gloo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nccl_triage.verify.interfaces import for_gloo
from nccl_triage.verify.model import Place, Run
from nccl_triage.verify.reachability import Matrix


@dataclass(frozen=True, slots=True)
class Ground:
    """The hosts of a session: places, what each said of itself, and which ways between them are open."""

    places: Sequence[Place]
    facts: Sequence[Mapping[str, Any]]
    matrix: Matrix


def realise(run: Run, ground: Ground, faults: Mapping[str, Any]) -> Run:
    """Return a run as it can be started on these hosts."""
    return replace(
        run,
        per_rank_env=_interfaces(run, ground),
        store_address=run.store_address or store_address(run, ground),
        faults=dict(faults),
    )


def _interfaces(run: Run, ground: Ground) -> dict[int, dict[str, str]]:
    """Return the variables of each rank, so that Gloo takes the interface that NCCL would take."""
    env = {rank: dict(found) for rank, found in run.per_rank_env.items()}
    if run.backend != "gloo":
        return env
    for rank, slot in enumerate(run.slots):
        own = env.get(rank, {})
        if "GLOO_SOCKET_IFNAME" in own:
            continue
        found = for_gloo(ground.facts[slot.place], run.env)
        if len(run.places) == 1 and not any(name.endswith("SOCKET_IFNAME") for name in run.env):
            found = {"GLOO_SOCKET_IFNAME": "lo"}  # one host: nothing leaves it
        if found:
            env[rank] = {**own, **found}
    return env


def store_address(run: Run, ground: Ground) -> str:
    """Return the address of rank 0's host that the others reach; the log's trouble may be elsewhere."""
    if len(run.places) == 1:
        return "127.0.0.1"
    first = run.slots[0].place
    names = [ground.places[place].name for place in run.places]
    reached = ground.matrix.reached_by_all(ground.places[first].name, names)
    facts = ground.facts[first]
    own = [entry["address"] for entry in facts["interfaces"] if entry["up"] and not entry["loopback"]]
    known = (ground.places[first].address, *reached, *facts["own_addresses"], *own)
    return next((address for address in known if address and address != "127.0.0.1"), "127.0.0.1")
