"""The stuck collective: who waits in it, who is absent or late, and who called another one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.recorder.lines import spans
from nccl_triage.story.differences import minority
from nccl_triage.story.ledger import Standing

_MILLISECONDS = lazily(r"after (\d{1,12}) ?ms")
_SHARDED_FILES = lazily(
    r"partitioned_param_coordinator|partition_parameters|parameter_offload|zero/stage3|fully_shard|/fsdp/|_fsdp_"
)

#: Sides of a mismatch that are told.
_SIDES = 3


def id_waits(case: Case) -> list[Event]:
    """Return the lines of ranks that waited in vain for the id of a new communicator from another rank."""
    return [e for e in case.having("rendezvous.failed", "src_rank") if "imeout" in e.fields.get("error", "")]


def time_outs(case: Case) -> list[Event]:
    """Return the lines of ranks that gave up waiting for a collective. Setting up a communicator does not count."""
    waits = [e for e in case.of("collective.timeout") if "init" not in (e.fields.get("op") or "").lower()]
    # The first collective of a group waits in the store for the id from the first rank of the group.
    return waits + id_waits(case)


@fact("collective.stuck", "the records of the ranks that timed out in a collective")
def _stuck(case: Case) -> Fact | None:
    records = case.ledger.standings
    return Fact(records, [record.event for record in records][:8]) if records else None


@fact("collective.timed_out_ranks", "ranks that reported a timeout of a collective (watchdog or Gloo)")
def _timed_out(case: Case) -> Fact | None:
    events = time_outs(case)
    if not events:
        return None
    return Fact(case.ranks(events), events[:6])


@fact("collective.timeouts", "how many processes reported a timeout of a collective")
def _timeouts(case: Case) -> Fact | None:
    events = time_outs(case)
    if not events:
        return None
    processes = {case.rank(e) if case.rank(e) is not None else e.context.process_key() for e in events}
    return Fact(len(processes), events[:4])


def _majority(case: Case, what: str) -> Fact | None:
    records = case.value("collective.stuck")
    if not records:
        return None
    values = [getattr(r, what) for r in records if getattr(r, what) is not None]
    if not values:
        return None
    value = Counter(values).most_common(1)[0][0]
    return Fact(value, [r.event for r in records if getattr(r, what) == value][:1])


@fact("collective.op", "the operation that most ranks are stuck in")
def _op(case: Case) -> Fact | None:
    return _majority(case, "op")


@fact("collective.seq", "the sequence number that most ranks are stuck at")
def _seq(case: Case) -> Fact | None:
    return _majority(case, "seq")


@fact("collective.numel", "the number of input elements of the stuck operation")
def _numel(case: Case) -> Fact | None:
    return _majority(case, "numel_in")


@fact("collective.timeout_ms", "the timeout of the stuck operation in milliseconds")
def _timeout(case: Case) -> Fact | None:
    found = _majority(case, "timeout_ms")
    if found is not None:
        return found
    for event in case.having("collective.timeout", "timeout_ms"):
        value = event.number("timeout_ms")
        if value is not None:
            return Fact(int(value), [event])
    for event in case.having("rendezvous.failed", "src_rank"):
        error = event.fields.get("error", "")
        stated = _MILLISECONDS.search(error)
        if stated or "imeout" in error:
            # "Socket Timeout" comes without a number. Releases that print it have a default of 30 minutes.
            return Fact(int(stated[1]) if stated else 1_800_000, [event])
    return None


@fact(
    "collective.awaited_ranks",
    "ranks whose communicator id the others waited for in the store",
    blames=("the others waited for it in the store", "其他 rank 在 store 中等待它"),
)
def _awaited(case: Case) -> Fact | None:
    events = id_waits(case)
    ranks = sorted({int(n) for e in events if (n := e.number("src_rank")) is not None} - set(case.ranks(events)))
    return Fact(ranks, events[:2]) if ranks else None


@fact(
    "collective.overrun_ranks",
    "the minority whose watchdog saw the timeout only long after it: the process itself stood still meanwhile",
    blames=("its process stood still beyond the timeout", "它的进程在超时之后仍停滞不动"),
)
def _overrun(case: Case) -> Fact | None:
    found = case.ledger.overran()
    ranks = sorted({one.rank for one in found if one.rank is not None})
    if not ranks or 2 * len(found) > len(case.ledger.standings):
        return None
    return Fact(ranks, [one.event for one in found][:3])


@fact("collective.early", "the stuck operation is among the first of its group (sequence number 3 or less)")
def _early(case: Case) -> Fact | None:
    seq = case.fact("collective.seq")
    return Fact(seq.value <= 3, seq.events) if seq is not None else None


@fact("collective.group_size", "the group's size as far as it follows from the log (NumelOut/NumelIn of gathers)")
def _group_size(case: Case) -> Fact | None:
    size = case.ledger.group_size()
    return Fact(size, [one.event for one in case.ledger.standings][:1]) if size is not None else None


@fact(
    "collective.shape_mismatch",
    "at one sequence number ranks run different operations or sizes: the minority ranks",
    blames=("runs a different collective than the majority", "执行的集合操作与多数 rank 不同"),
)
def _shape_mismatch(case: Case) -> Fact | None:
    for odd, rest in case.ledger.odd_shapes(case.presence.unheard()):
        ranks = sorted({one.rank for one in odd if one.rank is not None})
        return Fact(ranks or [-1], _lines_of_sides(odd, rest))
    return None


def _lines_of_sides(odd: Sequence[Standing], rest: Sequence[Standing]) -> list[Event]:
    """Return a line of each side first, then those of the other odd ranks."""
    first = list({one.shape: one.event for one in reversed([*odd, *rest])}.values())[::-1]
    return [*first[:3], *(one.event for one in odd if one.event not in first)][:4]


@fact("collective.op_mismatch", "at one sequence number ranks run different operations (not only sizes)")
def _op_mismatch(case: Case) -> Fact | None:
    for odd, rest in case.ledger.odd_shapes():
        if len({one.op for one in (*odd, *rest)}) > 1:
            return Fact(True, _lines_of_sides(odd, rest))
    return None


@fact("collective.shape_sides", "who runs which operation at that number, the fewest first")
def _shape_sides(case: Case) -> Fact | None:
    for odd, rest in case.ledger.odd_shapes(case.presence.unheard()):
        sides: dict[tuple[object, ...], list[Standing]] = defaultdict(list)
        for one in (*odd, *rest):
            if one.rank is not None:
                sides[one.shape].append(one)
        told = [
            f"rank {spans(sorted({one.rank for one in side if one.rank is not None}))} in {side[0].call}"
            for side in sorted(sides.values(), key=len)[:_SIDES]
        ]
        return Fact(", ".join(told), _lines_of_sides(odd, rest)) if len(told) > 1 else None
    return None


@fact("collective.shape_group", "the process group that all ranks name whose operations or sizes differ at that number")
def _shape_group(case: Case) -> Fact | None:
    for odd, rest in case.ledger.odd_shapes(case.presence.unheard()):
        names = {one.group for one in (*odd, *rest)}
        name = names.pop() if len(names) == 1 else None
        return Fact(name, _lines_of_sides(odd, rest)) if name is not None else None
    return None


@fact("collective.seq_differs", "ranks of one group are stuck at different sequence numbers: the spread")
def _seq_differs(case: Case) -> Fact | None:
    found = case.ledger.spread()
    return None if found is None else Fact(found[0], [one.event for one in found[1]][:4])


@fact("collective.seq_shapes_differ", "these ranks name one group, and run operations of other kinds or sizes")
def _seq_shapes(case: Case) -> Fact | None:
    found = case.ledger.spread()
    return (
        Fact(True, [one.event for one in found[1]][:4]) if found is not None and case.ledger.shapes_differ() else None
    )


@fact(
    "collective.unfinished_ranks",
    "ranks that wait in an operation which the others of their group finished hundreds of operations ago",
    blames=("waits in an operation that the others of its group finished", "停在同组其他 rank 早已完成的操作中"),
)
def _unfinished(case: Case) -> Fact | None:
    found = case.ledger.unfinished()
    if found is None:
        return None
    behind, furthest = found
    ranks = sorted({one.rank for one in behind if one.rank is not None})
    return Fact(ranks, [one.event for one in (*behind[:3], furthest)])


@fact(
    "collective.divided_hosts", "hosts whose ranks all gave up at one sequence number, those of other hosts at another"
)
def _divided(case: Case) -> Fact | None:
    found = case.ledger.divided()
    return Fact(sorted(found), [own[0].event for own in found.values()][:4]) if found else None


@fact("collective.ahead_ranks", "the minority that issued further collectives where all others have completed theirs")
def _ahead(case: Case) -> Fact | None:
    found = case.ledger.ahead()
    ranks = sorted({one.rank for one in found if one.rank is not None})
    return Fact(ranks, [one.event for one in found][:3]) if ranks else None


@fact(
    "collective.odd_ranks",
    "the minority among ranks stuck at different sequence numbers of a group that all of them name",
    blames=("runs a different collective than the majority", "执行的集合操作与多数 rank 不同"),
)
def _odd_ranks(case: Case) -> Fact | None:
    if case.fact("collective.seq_differs") is None or not case.ledger.names_groups:
        return None
    records = [r for r in case.value("collective.stuck") or [] if r.seq is not None and r.rank is not None]
    odd = minority({number: record.seq for number, record in enumerate(records)}, case.presence.unheard())
    if not odd or len(odd) == len(records):
        return None
    return Fact(sorted({records[number].rank for number in odd}), [records[number].event for number in odd][:3])


@fact(
    "collective.behind_ranks",
    "ranks whose last enqueued number, or number of operations by NCCL's RAS, is below that of the others",
)
def _behind(case: Case) -> Fact | None:
    behind = case.ledger.behind()
    if ranks := sorted({one.rank for one in behind if one.rank is not None}):
        return Fact(ranks, [one.event for one in behind][:3])
    observed = [e for e in case.of("collective.notified") if case.rank(e) is not None]
    timed_out = {one.rank for one in case.ledger.standings}
    ranks = sorted({r for e in observed if (r := case.rank(e)) is not None and r not in timed_out})
    if timed_out and ranks and len(ranks) <= max(1, len(timed_out)) and not case.ledger.ahead():
        return Fact(ranks, [e for e in observed if case.rank(e) in ranks][:3])
    return None


@fact(
    "collective.parameters_sharded",
    "parameters are sharded (DeepSpeed ZeRO-3 or FSDP), by frames, gathers or DeepSpeed's own lines",
)
def _parameters_sharded(case: Case) -> Fact | None:
    events = case.telling("sharded")
    events += [e for e in case.of("exception.frame") if _SHARDED_FILES.search(e.fields.get("path", ""))]
    events += [
        e for e in case.of("setting")
        if re.search(r"\bstage['\"]?\s?[=:]\s?3|zero_optimization_stage \.* 3", e.text)
    ]  # fmt: skip
    if events:
        return Fact(True, events[:3])
    gather = case.fact("collective.is_parameter_gather")
    return Fact(True, gather.events) if gather is not None and gather.value else None


@fact("collective.is_barrier", "the stuck operation is a barrier or a single scalar (one element)")
def _is_barrier(case: Case) -> Fact | None:
    numel, op = case.fact("collective.numel"), case.fact("collective.op")
    if op is not None and op.value == "BARRIER":
        return Fact(True, op.events)
    return Fact(numel.value == 1, numel.events) if numel is not None else None


@fact("collective.is_parameter_gather", "the stuck operation is a parameter gather of ZeRO-3 or FSDP")
def _gather(case: Case) -> Fact | None:
    op = case.fact("collective.op")
    if op is None:
        return None
    return Fact(op.value in ("_ALLGATHER_BASE", "ALLGATHER_coalesced", "_ALLGATHER_BASE_COALESCED"), op.events)


#: Largest job whose log can be expected to show all ranks.
_MANY = 4096


@fact(
    "collective.absent_ranks",
    "ranks that a monitored barrier, desync report, flight recorder, RAS or Horovod's stall check names as not arrived",
    blames=("named as the missing rank", "被点名为缺席的 rank"),
)
def _absent(case: Case) -> Fact | None:
    found = case.ledger.absent
    return None if found is None else Fact(found[0], list(found[1])[:4])


@fact(
    "ras.silent_ranks",
    "ranks of a communicator that gave NCCL's RAS no data: dead, stuck or stopped",
    blames=("did not answer NCCL's RAS", "没有应答 NCCL 的 RAS"),
)
def _unanswered(case: Case) -> Fact | None:
    found = case.ledger.unanswered()
    return Fact(sorted(found), list(found.values())[:4]) if found else None


def _complaining(case: Case) -> dict[int, Event]:
    """Return the ranks that report broken or late communication, each with its first such line."""
    found: dict[int, Event] = {}
    for event in case.of("collective.timeout", "collective.mismatch", "connection.lost", "connection.refused"):
        rank = case.rank(event)
        if event.is_failure and rank is not None:
            found.setdefault(rank, event)
    return found


@fact(
    "collective.absent_silent_ranks",
    "ranks named as absent that report no error themselves: still busy, stopped or late",
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
        "the only rank up to the highest seen that did not report the timeout",
        "在已出现的最大 rank 以内，只有它没有报告超时",
    ),
)
def _left_out(case: Case) -> Fact | None:
    timed_out = case.fact("collective.timed_out_ranks")
    if timed_out is None or len(timed_out.value) < 2 or case.observations.interruption is not None:
        return None
    # Ranks are numbered from 0 without gaps, so a job with ranks 1, 2 and 3 also has a rank 0.
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
        return None  # if a path between hosts broke, the end that a rank sees may be that of a waiting peer
    broken = [event for event in case.of("connection.lost") if case.rank(event) == left]
    return Fact([left], [*timed_out.events[:2], *broken[:1]]) if broken else None
