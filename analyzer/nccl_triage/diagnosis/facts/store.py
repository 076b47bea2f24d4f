"""Who found the store of the rendezvous and who did not."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.observations.event import Event

#: Ranks of a job above this are not listed one by one.
MOST_RANKS = 65_536

#: Lines below its header within which a coordinator's list of tasks stands.
_TASK_LIST = 200


def _by(case: Case, of_ranks: bool) -> dict[int | str, list[Event]]:
    """Return the lines of processes that gave up, or try again, since they do not reach the store, by rank or by host.

    Not those of single attempts: they are printed as well while the store is still starting, and for the addresses of
    the other family.
    """
    found: dict[int | str, list[Event]] = {}
    for event in case.telling(store="unreached"):
        who = case.rank(event) if of_ranks else case.host(event)
        if who is not None:
            found.setdefault(who, []).append(event)
    return found


def _stranded(case: Case, speakers: set[int | str], of_ranks: bool) -> Fact | None:
    """Return those who do not reach the store that the others, at least as many, have found."""
    lost = _by(case, of_ranks)
    others = speakers - set(lost)
    if not lost or len(lost) > len(others):
        return None
    return Fact(sorted(lost, key=str), [events[0] for events in lost.values()][:3])


@fact(
    "rendezvous.stranded_ranks",
    "ranks that did not reach the store which the others, at least as many, had found",
    blames=("did not reach the store that the others had found", "没有连上其他 rank 已找到的 store"),
)
def _ranks(case: Case) -> Fact | None:
    return _stranded(case, set(case.identity.ranks), True)


@fact(
    "rendezvous.stranded_hosts",
    "hosts that did not reach the store which the others, at least as many, had found",
    blames=("did not reach the store that the others had found", "没有连上其他主机已找到的 store"),
)
def _hosts(case: Case) -> Fact | None:
    return _stranded(case, set(case.identity.hosts), False)


@fact(
    "rendezvous.store_gone_ranks",
    "the rank asked for the id of a communicator, where the store broke off the question and that rank reports nothing",
)
def _gone(case: Case) -> Fact | None:
    asked = [e for e in case.having("rendezvous.failed", "src_rank") if "time" not in e.fields.get("error", "").lower()]
    loud = {case.rank(event) for event in case.events if event.is_failure}
    ranks = sorted({int(n) for e in asked if (n := e.number("src_rank")) is not None} - loud)
    return Fact(ranks, asked[:2]) if ranks else None


@fact(
    "rendezvous.barrier_missing_ranks",
    "ranks that never reached the barrier of the store, by its count and by who waited there",
    blames=("never reached the barrier in which the others were counted", "从未到达其他 rank 已被计数的屏障"),
)
def _barrier(case: Case) -> Fact | None:
    failed = case.having("rendezvous.failed", "key", "joined")
    if not failed:
        return None
    key = failed[-1].fields.get("key")
    events = [
        e
        for e in case.of("rendezvous.failed", "collective.waiting")
        if "joined" in e.fields and e.fields.get("key") == key
    ]
    waiting = {int(n) for e in events if (n := e.number("rank")) is not None}
    world = max((int(n) for e in events if (n := e.number("world")) is not None), default=0)
    joined = max((int(n) for e in events if (n := e.number("joined")) is not None), default=0)
    # Only where all that the store counted are heard: of a log of few ranks the others may have joined as well.
    if not joined <= len(waiting) < world <= MOST_RANKS:
        return None
    return Fact(sorted(set(range(world)) - waiting), events[-2:])


@fact(
    "rendezvous.named_tasks",
    "processes that the coordinator of a JAX or TensorFlow job lists as missing at a barrier or as silent",
    blames=("the coordinator lists it as missing or silent", "协调器把它列为缺席或无响应"),
)
def _named_tasks(case: Case) -> Fact | None:
    headers = case.telling(lists="tasks")
    # Only lists that stand below a header of theirs: other programs print task names, too.
    named = [
        e
        for e in case.having("rank.identity", "peer_rank")
        if any(h.source == e.source and 0 < e.line - h.line <= _TASK_LIST for h in headers)
    ]
    named += [e for e in headers if "peer_rank" in e.fields]
    ranks = sorted({int(n) for e in named if (n := e.number("peer_rank")) is not None})
    return Fact(ranks, named[:2]) if ranks else None
