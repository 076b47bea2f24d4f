"""The rendezvous: who reached the store, who is missing at its barrier, and who expects another number of ranks."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.observations.event import Event
from nccl_triage.story.differences import minority

#: Largest job whose ranks are listed one by one.
MOST_RANKS = 65_536

#: Maximum distance of a coordinator's list of tasks from its header, in lines.
_TASK_LIST = 200


def _by(case: Case, of_ranks: bool) -> dict[int | str, list[Event]]:
    """Return the lines of processes that do not reach the store and gave up or try again, by rank or by host.

    Lines of single attempts do not count. They are also printed while the store is starting, and for addresses of the other
    family.
    """
    found: dict[int | str, list[Event]] = {}
    for event in case.telling(store="unreached"):
        who = case.rank(event) if of_ranks else case.host(event)
        if who is not None:
            found.setdefault(who, []).append(event)
    return found


def _stranded(case: Case, speakers: set[int | str], of_ranks: bool) -> Fact | None:
    """Return those who do not reach the store, if at least as many others have found it."""
    lost = _by(case, of_ranks)
    others = speakers - set(lost)
    if not lost or len(lost) > len(others):
        return None
    return Fact(sorted(lost, key=str), [events[0] for events in lost.values()][:3])


@fact(
    "rendezvous.stranded_ranks",
    "ranks that did not reach the store that the others (at least as many) had reached",
    blames=("did not reach the store that the others had reached", "没有连上其他 rank 已连上的 store"),
)
def _ranks(case: Case) -> Fact | None:
    return _stranded(case, set(case.identity.ranks), True)


@fact(
    "rendezvous.stranded_hosts",
    "hosts that did not reach the store that the others (at least as many) had reached",
    blames=("did not reach the store that the others had reached", "没有连上其他主机已连上的 store"),
)
def _hosts(case: Case) -> Fact | None:
    return _stranded(case, set(case.identity.hosts), False)


@fact(
    "rendezvous.store_gone_ranks",
    "the rank asked for a communicator id, where the store connection broke and that rank reports nothing",
)
def _gone(case: Case) -> Fact | None:
    asked = [e for e in case.having("rendezvous.failed", "src_rank") if "time" not in e.fields.get("error", "").lower()]
    loud = {case.rank(event) for event in case.events if event.is_failure}
    ranks = sorted({int(n) for e in asked if (n := e.number("src_rank")) is not None} - loud)
    return Fact(ranks, asked[:2]) if ranks else None


@fact(
    "rendezvous.barrier_missing_ranks",
    "ranks that never reached the store barrier, by its count and the ranks waiting there",
    blames=("never reached the barrier that counted the others", "从未到达其他 rank 已被计数的屏障"),
)
def _barrier(case: Case) -> Fact | None:
    failed = case.having("rendezvous.failed", "key", "joined")
    if not failed:
        return _uncounted(case)
    key = failed[-1].fields.get("key")
    events = [
        e
        for e in case.of("rendezvous.failed", "collective.waiting")
        if "joined" in e.fields and e.fields.get("key") == key
    ]
    waiting = {int(n) for e in events if (n := e.number("rank")) is not None}
    world = max((int(n) for e in events if (n := e.number("world")) is not None), default=0)
    joined = max((int(n) for e in events if (n := e.number("joined")) is not None), default=0)
    # The log must contain all ranks that the store counted. Otherwise the others may have joined, too.
    if not joined <= len(waiting) < world <= MOST_RANKS:
        return None
    return Fact(sorted(set(range(world)) - waiting), events[-2:])


def _uncounted(case: Case) -> Fact | None:
    """Return the ranks that the store did not count, if all that it did count gave up waiting there."""
    counts = case.having("rendezvous.failed", "joined", "world")
    if not counts:
        return None
    joined, world = (int(counts[-1].number(name) or 0) for name in ("joined", "world"))
    waiting = set(case.ranks(case.of("rendezvous.failed")))
    # Agents of nodes may be counted instead of ranks. If most are missing, the store is at fault.
    if not joined <= len(waiting) < world <= MOST_RANKS or max(case.identity.ranks, default=0) >= world:
        return None
    if 2 * len(waiting) < world:
        return None
    return Fact(sorted(set(range(world)) - waiting), counts[-1:])


@fact(
    "rendezvous.named_tasks",
    "processes that the coordinator of a JAX or TensorFlow job lists as missing at a barrier or as silent",
    blames=("listed as missing or silent by the coordinator", "协调器把它列为缺席或无响应"),
)
def _named_tasks(case: Case) -> Fact | None:
    headers = case.telling(lists="tasks")
    # Other programs print task names, too, so a list must stand below its header.
    named = [
        e
        for e in case.having("rank.identity", "peer_rank")
        if any(h.source == e.source and 0 < e.line - h.line <= _TASK_LIST for h in headers)
    ]
    named += [e for e in headers if "peer_rank" in e.fields]
    ranks = sorted({int(n) for e in named if (n := e.number("peer_rank")) is not None})
    return Fact(ranks, named[:2]) if ranks else None


@fact(
    "rendezvous.odd_world_ranks",
    "ranks whose number of ranks differs from the majority",
    blames=("was configured with a different number of ranks", "配置的 rank 总数与其他不同"),
)
def _odd_world(case: Case) -> Fact | None:
    sizes: dict[int, tuple[int, Event]] = {}
    for event in case.of("communicator.starting"):
        rank, size = event.number("rank"), event.number("nranks")
        if rank is not None and size is not None:
            sizes[int(rank)] = (int(size), event)
    odd = minority({rank: size for rank, (size, _) in sizes.items()}, case.presence.unheard())
    return Fact(sorted(odd), [sizes[rank][1] for rank in odd][:3]) if 0 < len(odd) < len(sizes) else None
