"""The size of the job, and what NCCL made of the machines: channels, multicast, algorithms."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.baseline.model import Difference
from nccl_triage.baseline.values import Valued, changed, first_event, of_field
from nccl_triage.diagnosis.case import Case
from nccl_triage.observations.event import Event


def compare(good: Case, bad: Case) -> Iterator[Difference]:
    """Yield what differs in numbers of ranks, hosts and channels, in topology and in algorithms."""
    yield from changed("world", "ranks", _number(good, good.identity.world_size), _number(bad, bad.identity.world_size))
    for name, key in (("nodes", "nnodes"), ("ranks a node", "local_ranks")):
        yield from changed("world", name, *(_largest(case, "communicator.starting", key) for case in (good, bad)))
    for name, key in (("collective channels", "coll"), ("p2p channels", "p2p")):
        channels = (_largest(case, "transport.chosen", key) for case in (good, bad))
        yield from changed("topology", name, *channels)
    multicast = (of_field(case.having("transport.chosen", chosen="multicast"), "value") for case in (good, bad))
    yield from changed("topology", "NVLS multicast", *multicast)
    for name, key in (("GPUDirect in rings", "gdr"), ("PXN in rings", "pxn")):
        rings = (of_field(case.having("communicator.ready", key), key) for case in (good, bad))
        yield from changed("topology", name, *rings)
    yield from _algorithms(good, bad)


def _algorithms(good: Case, bad: Case) -> Iterator[Difference]:
    """Yield the choices that the good run never made; which are made depends on the sizes that occur."""
    for name, key in (("algorithm", "algo"), ("protocol", "proto")):
        theirs, ours = (of_field(case.having("transport.chosen", key), key) for case in (good, bad))
        if {value for value, _ in ours} - {value for value, _ in theirs}:
            yield from changed("algorithm", name, theirs, ours)


def _number(case: Case, value: int | None) -> Valued:
    if not value:
        return ()
    names = ("nranks", "world_size", "world")
    at = next((e for e in case.events if any(e.fields.get(name) == str(value) for name in names)), first_event(case))
    return [(str(value), at)] if at is not None else ()


def _largest(case: Case, kind: str, key: str) -> Valued:
    """Return the largest number of a field: small communicators come and go, the largest is the job's."""
    found: tuple[float, Event] | None = None
    for event in case.having(kind, key):
        number = event.number(key)
        if number is not None and (found is None or number > found[0]):
            found = number, event
    return [(str(int(found[0])), found[1])] if found else ()
