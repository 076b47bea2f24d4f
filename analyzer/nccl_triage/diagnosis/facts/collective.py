"""The stuck collective: who entered, who waits, who is missing, who disagrees, by the ledger of the story."""

from __future__ import annotations

import re
from collections import Counter

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.story.differences import minority

_MILLISECONDS = lazily(r"after (\d{1,12}) ?ms")
_SHARDED_FILES = lazily(
    r"partitioned_param_coordinator|partition_parameters|parameter_offload|zero/stage3|fully_shard|/fsdp/|_fsdp_"
)


def id_waits(case: Case) -> list[Event]:
    """Return the lines of ranks that waited in vain for the id of a new communicator, which another rank makes."""
    return [e for e in case.having("rendezvous.failed", "src_rank") if "imeout" in e.fields.get("error", "")]


def time_outs(case: Case) -> list[Event]:
    """Return the lines by which ranks gave up waiting for a collective, set-up of a communicator left out."""
    waits = [e for e in case.of("collective.timeout") if "init" not in (e.fields.get("op") or "").lower()]
    # The first collective of a group waits in the store for the id that its first rank makes.
    return waits + id_waits(case)


@fact("collective.stuck", "the records of the ranks that timed out in a collective")
def _stuck(case: Case) -> Fact | None:
    records = case.ledger.standings
    return Fact(records, [record.event for record in records][:8]) if records else None


@fact("collective.timed_out_ranks", "ranks that reported a time-out of a collective (watchdog or Gloo)")
def _timed_out(case: Case) -> Fact | None:
    events = time_outs(case)
    if not events:
        return None
    return Fact(case.ranks(events), events[:6])


@fact("collective.timeouts", "how many processes reported a time-out of a collective")
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


@fact("collective.timeout_ms", "the time-out of the stuck operation in milliseconds")
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
            # "Socket Timeout" states no number: 30 minutes was the default of the releases that print it.
            return Fact(int(stated[1]) if stated else 1_800_000, [event])
    return None


@fact(
    "collective.awaited_ranks",
    "ranks whose id of a new communicator the others waited for in the store",
    blames=("the others waited in the store for it", "其他 rank 在 store 中等待它"),
)
def _awaited(case: Case) -> Fact | None:
    events = id_waits(case)
    ranks = sorted({int(n) for e in events if (n := e.number("src_rank")) is not None} - set(case.ranks(events)))
    return Fact(ranks, events[:2]) if ranks else None


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
    blames=("runs another collective than the majority", "执行的集合操作与多数 rank 不同"),
)
def _shape_mismatch(case: Case) -> Fact | None:
    for odd, rest in case.ledger.odd_shapes(case.presence.unheard()):
        ranks = sorted({one.rank for one in odd if one.rank is not None})
        return Fact(ranks or [-1], [one.event for one in odd][:3] + [one.event for one in (*odd, *rest)][:2])
    return None


@fact("collective.op_mismatch", "at one sequence number ranks run different operations (not only sizes)")
def _op_mismatch(case: Case) -> Fact | None:
    for odd, rest in case.ledger.odd_shapes():
        records = [*odd, *rest]
        if len({one.op for one in records}) > 1:
            return Fact(True, [one.event for one in records][:4])
    return None


@fact("collective.seq_differs", "ranks of one group are stuck at different sequence numbers: the spread")
def _seq_differs(case: Case) -> Fact | None:
    found = case.ledger.spread()
    return None if found is None else Fact(found[0], [one.event for one in found[1]][:4])


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
    "the minority among ranks stuck at different sequence numbers",
    blames=("runs another collective than the majority", "执行的集合操作与多数 rank 不同"),
)
def _odd_ranks(case: Case) -> Fact | None:
    if case.fact("collective.seq_differs") is None:
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
