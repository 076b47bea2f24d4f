"""Who arrived at the stuck collective, who is named as absent, and who came late."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.observations.event import Event

#: A log of a job with more ranks than this shows no more than a part of them.
_MANY = 4096


@fact(
    "collective.absent_ranks",
    "ranks that a monitored barrier, desync report, flight recorder, RAS or Horovod's stall check names as not arrived",
    blames=("named as the rank that did not arrive", "被点名为未到达的 rank"),
)
def _absent(case: Case) -> Fact | None:
    found = case.ledger.absent
    return None if found is None else Fact(found[0], list(found[1])[:4])


@fact(
    "ras.silent_ranks",
    "ranks of a communicator that gave NCCL's RAS no data: dead, stuck or stopped",
    blames=("gave NCCL's RAS no data", "没有向 NCCL 的 RAS 提供数据"),
)
def _unanswered(case: Case) -> Fact | None:
    found = case.ledger.unanswered()
    return Fact(sorted(found), list(found.values())[:4]) if found else None


def _complaining(case: Case) -> dict[int, Event]:
    """Return the ranks that report broken or late communication of their own, with the first such line."""
    found: dict[int, Event] = {}
    for event in case.of("collective.timeout", "collective.mismatch", "connection.lost", "connection.refused"):
        rank = case.rank(event)
        if event.is_failure and rank is not None:
            found.setdefault(rank, event)
    return found


@fact(
    "collective.absent_silent_ranks",
    "ranks named as absent that report no error themselves: still busy, asleep or late",
)
def _absent_silent(case: Case) -> Fact | None:
    absent = case.fact("collective.absent_ranks")
    if absent is None:
        return None
    complaining = _complaining(case)
    heard = {*complaining, *(case.value("exception.ranks") or [])}
    ranks = [rank for rank in absent.value if rank not in heard]
    return Fact(ranks, absent.events[:3]) if ranks else None


@fact("collective.all_entered", "every rank of the group entered the stuck operation with the same shape")
def _all_entered(case: Case) -> Fact | None:
    found = case.ledger.all_entered()
    return Fact(True, [one.event for one in found][:3]) if found else None


@fact("collective.late_ranks", "ranks that arrived at the stuck operation much later than the rest")
def _late(case: Case) -> Fact | None:
    records = [r for r in case.value("collective.stuck") or [] if r.arrival is not None and r.rank is not None]
    if len(records) < 3:
        return case.fact("progress.entered_late_ranks")
    arrivals = sorted(r.arrival for r in records if r.arrival is not None)
    middle = arrivals[len(arrivals) // 2]
    limit = max(30.0, 0.1 * (records[0].timeout_ms or 600_000) / 1000)
    late = [r for r in records if r.arrival is not None and r.arrival - middle > limit]
    if not late or len(late) * 2 > len(records):
        return None
    return Fact(sorted({r.rank for r in late if r.rank is not None}), [r.event for r in late][:3])


@fact(
    "collective.left_out_ranks",
    "the only rank below the highest that timed out which reported no failure, where two or more timed out",
    blames=(
        "the only one up to the highest rank that did not report the time-out",
        "在已出现的最大 rank 以内，只有它没有报告超时",
    ),
)
def _left_out(case: Case) -> Fact | None:
    timed_out = case.fact("collective.timed_out_ranks")
    if timed_out is None or len(timed_out.value) < 2 or case.observations.interruption is not None:
        return None
    # Ranks are counted from 0 without a gap, so a log that shows ranks 1, 2 and 3 is one of a job that has a rank 0.
    loud = {rank for event in case.failures if (rank := case.rank(event)) is not None}
    left = [rank for rank in range(min(max(timed_out.value), _MANY)) if rank not in loud and case.presence.covers(rank)]
    return Fact(left, timed_out.events[:3]) if len(left) == 1 else None


@fact(
    "collective.outlasted_ranks",
    "the one rank of the world that did not time out: it only found its connections closed by all others, who had waited",
)
def _outlasted(case: Case) -> Fact | None:
    timed_out = case.fact("collective.timed_out_ranks")
    world = case.identity.world_size
    if (
        timed_out is None
        or not world
        or not 3 <= world <= _MANY
        or len(timed_out.value) != world - 1
        or case.observations.interruption is not None
    ):
        return None
    if not set(timed_out.value) <= set(range(world)) or case.value("mismatch.elsewhere_ranks"):
        return None
    (left,) = set(range(world)) - set(timed_out.value)
    if case.value("network.multi_host"):
        return None  # where a path between hosts breaks, one may see the end of a peer that waited like itself
    broken = [event for event in case.of("connection.lost") if case.rank(event) == left]
    return Fact([left], [*timed_out.events[:2], *broken[:1]]) if broken else None
