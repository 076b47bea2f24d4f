"""Which ranks were there, which are silent, missing or late, by what they print and do not print."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.observations.event import Event


@fact("progress.stalled_ranks", "ranks that were alive, had not finished and reported no error while others timed out")
def _stalled(case: Case) -> Fact | None:
    timed_out = case.fact("collective.timed_out_ranks")
    silent = case.value("progress.silent_ranks")
    if timed_out is None or not silent:
        return None
    gone: set[int] = set()
    for name in ("process.clean_exit_ranks", "progress.finished_early_ranks", "process.killed_ranks", "process.crashed_ranks",
                 "process.aborted_ranks", "exception.ranks"):  # fmt: skip
        gone |= set(case.value(name) or [])
    ranks = [r for r in silent if r not in gone and r in case.identity.ranks]
    if not case.presence.stand_out(ranks):
        return None
    return (
        Fact(ranks, [*timed_out.events[:2], *[e for e in case.events if case.rank(e) in ranks][-1:]]) if ranks else None
    )


@fact("progress.entered_late_ranks", "ranks that entered the collective only after another rank had given up waiting")
def _entered_late(case: Case) -> Fact | None:
    # The driver may report it first, for one of its ranks.
    gave_up = case.of("collective.timeout")
    if not gave_up or not case.order_known:
        return None
    first = case.position(gave_up[0])
    late: dict[int, Event] = {}
    early: set[int] = set()
    for event in case.of("collective.entered"):
        rank = case.rank(event)
        if rank is None:
            continue
        if case.position(event) < first:
            early.add(rank)
        elif rank != case.rank(gave_up[0]):
            late.setdefault(rank, event)
    ranks = sorted(set(late) - early)
    return Fact(ranks, [gave_up[0], *late.values()][:3]) if ranks and early else None


def _of_nccl(case: Case, kind: str) -> list[Event]:
    return [event for event in case.of(kind) if event.context.program == "nccl"]


@fact(
    "progress.vanished_ranks",
    "ranks whose NCCL communicator came up and which, unlike the others, never aborted or ended it",
)
def _vanished(case: Case) -> Fact | None:
    up = set(case.ranks(_of_nccl(case, "communicator.ready")))
    ended = set(case.ranks(_of_nccl(case, "communicator.closed")))
    closed = [event for event in _of_nccl(case, "connection.lost") if "peer" in event.fields]
    ranks = sorted(up - ended)
    if not closed or not ended or not ranks or len(ranks) >= len(ended):
        return None
    return Fact(ranks, [*[e for e in case.events if case.rank(e) in ranks][-1:], *closed[:2]])


@fact(
    "progress.silent_ranks",
    "ranks without any error line of their own while others report errors",
    blames=("reported no error while the others timed out", "其他 rank 超时，它没有任何报错"),
)
def _silent(case: Case) -> Fact | None:
    if case.observations.interruption is not None:
        return None
    known = case.presence.known
    own = [e for e in case.failures if not e.signature.startswith(("torchelastic.", "slurm.", "deepspeed."))]
    loud = {r for e in own if (r := case.rank(e)) is not None}
    silent = sorted(known - loud)
    if not loud or not silent or len(silent) > max(1, len(known) // 2):
        return None
    return Fact(silent, [e for e in case.events if case.rank(e) in silent][-2:])


@fact(
    "progress.lost_host_ranks",
    "ranks of a host from which, its launcher included, nothing is heard once the ranks of others fail",
    blames=(
        "its whole host fell silent when the others lost their connections",
        "其他 rank 连接中断时，它所在的整台主机陷入沉默",
    ),
)
def _lost_host(case: Case) -> Fact | None:
    silent = set(case.value("progress.silent_ranks") or [])
    by_host: dict[str, list[int]] = {}
    for rank, info in case.identity.ranks.items():
        if info.host:
            by_host.setdefault(info.host, []).append(rank)
    if not silent or len(by_host) < 2 or not case.order_known:
        return None
    first = case.position(case.failures[0])
    lost = [host for host, ranks in by_host.items() if len(ranks) > 1 and silent.issuperset(ranks)]
    heard = {case.host(event) for event in case.events if case.position(event) > first}
    lost = [host for host in lost if host not in heard]
    ranks = sorted(rank for host in lost for rank in by_host[host])
    last = [event for event in case.events if case.host(event) in lost][-1:]
    return Fact(ranks, [*last, *case.failures[:1]]) if ranks else None


@fact("progress.missing_ranks", "ranks of the world that printed nothing at all", blames=("never appeared", "从未出现"))
def _missing(case: Case) -> Fact | None:
    if case.observations.interruption is not None:
        return None
    world = case.identity.world_size
    if not world or world < 2 or world > 65_536 or len(case.identity.ranks) < 2 or case.presence.by_file:
        return None
    missing = sorted(set(range(world)) - set(case.identity.ranks))
    if not missing or len(missing) > world // 2:
        return None
    return Fact(missing, [])


@fact(
    "progress.init_missing_ranks",
    "ranks of the communicator that never printed Init START while others did",
    blames=("never appeared", "从未出现"),
)
def _init_missing(case: Case) -> Fact | None:
    if case.observations.interruption is not None:
        return None
    started = case.having("communicator.starting", "nranks", "busid")  # the line of its own that each rank prints
    ranks = set(case.ranks(started))
    sizes = [int(n) for e in started if (n := e.number("nranks")) is not None]
    if not ranks or not sizes or case.of("communicator.ready"):
        return None
    size = max(sizes)
    if size > 65_536:
        return None
    # A rank that printed anything else of NCCL, or failed by itself, was there.
    ranks |= set(case.ranks(e for e in case.events if e.is_failure or e.signature.startswith("nccl.")))
    missing = sorted(set(range(size)) - ranks)
    # A log of a few ranks of many is a part of the job's output, and says nothing about the others.
    if not missing or len(missing) > 2 * len(ranks):
        return None
    return Fact(missing, started[:2])
