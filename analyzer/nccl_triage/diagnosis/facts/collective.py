"""The stuck collective: who entered, who waits, who is missing, who disagrees.

Rules of ``semantics`` (PyTorch ``ProcessGroupNCCL.cpp``): the sequence number and the enqueued/completed counters are
per process group; a rank whose last enqueued number is below the stuck one never entered; a rank that timed out
arrived early and is a victim; the clock of an operation starts when the CPU enqueues it, so line time minus the
time that it ran is the moment of arrival.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.events import Event
from nccl_triage.patterns import lazily

_MILLISECONDS = lazily(r"after (\d{1,12}) ?ms")
#: Numbers above this in old counter lines are uninitialised memory (torch 2.3).
_GARBAGE = 1 << 31
_SHARDED_FILES = lazily(
    r"partitioned_param_coordinator|partition_parameters|parameter_offload|zero/stage3|fully_shard|/fsdp/|_fsdp_"
)
#: A difference of sequence numbers that one group can show; more means different groups.
_SAME_GROUP_SPREAD = 1000


@dataclass(slots=True)
class Stuck:
    """What one rank says about the operation that it is stuck in."""

    rank: int | None
    event: Event
    seq: int | None = None
    op: str | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    timeout_ms: int | None = None
    elapsed_ms: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    group: str | None = None

    @property
    def arrival(self) -> float | None:
        """When the rank enqueued the operation, in seconds of its own clock."""
        time = self.event.context.time
        return None if time is None or self.elapsed_ms is None else time - self.elapsed_ms / 1000


def watchdogs(case: Case) -> list[Event]:
    """Return the lines by which the watchdog of a backend, or a wait that blocks, gave up an operation that it numbers."""
    return case.having("collective.timeout", by="watchdog")


def id_waits(case: Case) -> list[Event]:
    """Return the lines of ranks that waited in vain for the id of a new communicator, which another rank makes."""
    return [e for e in case.having("rendezvous.failed", "src_rank") if "imeout" in e.fields.get("error", "")]


def time_outs(case: Case) -> list[Event]:
    """Return the lines by which ranks gave up waiting for a collective, set-up of a communicator left out."""
    waits = [e for e in case.of("collective.timeout") if "init" not in (e.fields.get("op") or "").lower()]
    # The first collective of a group waits in the store for the id that its first rank makes.
    return waits + id_waits(case)


def _integer(event: Event, *names: str) -> int | None:
    for name in names:
        value = event.number(name)
        if value is not None:
            return int(value)
    return None


def stuck_ranks(case: Case) -> list[Stuck]:
    """Return one record per rank that timed out, joined with its counters."""
    found: dict[object, Stuck] = {}
    for event in watchdogs(case):
        rank = case.rank(event)
        key: object = rank if rank is not None else ("?", event.context.process_key())
        if key in found and found[key].op is not None:
            continue
        found[key] = Stuck(
            rank=rank,
            event=event,
            seq=_integer(event, "seq"),
            op=event.fields.get("op") or event.fields.get("op_type"),
            numel_in=_integer(event, "numel_in"),
            numel_out=_integer(event, "numel_out"),
            timeout_ms=_integer(event, "timeout_ms"),
            elapsed_ms=_integer(event, "elapsed_ms", "ran_ms"),
        )
    for event in case.having("collective.counters", "enqueued"):
        rank = case.rank(event)
        key = rank if rank is not None else ("?", event.context.process_key())
        record = found.setdefault(key, Stuck(rank=rank, event=event, seq=_integer(event, "seq")))
        if record.seq is None or record.seq == _integer(event, "seq"):
            enqueued = _integer(event, "enqueued", "last_enqueued")
            completed = _integer(event, "completed", "last_completed")
            record.enqueued = enqueued if enqueued is not None and enqueued < _GARBAGE else None
            record.completed = completed if completed is not None and completed < _GARBAGE else None
            record.group = event.fields.get("pg_guid") or event.fields.get("pg_uid")
    return list(found.values())


def shape_of(record: Stuck) -> tuple[object, ...]:
    """Return what must be equal on all ranks of a collective: operation and sizes."""
    return (record.op, record.numel_in, record.numel_out)


@fact("collective.stuck", "the records of the ranks that timed out in a collective")
def _stuck(case: Case) -> Fact | None:
    records = stuck_ranks(case)
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


@fact("collective.awaited_ranks", "ranks whose id of a new communicator the others waited for in the store")
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
    for record in case.value("collective.stuck") or []:
        if record.op and "GATHER" in record.op and record.numel_in and record.numel_out:
            return Fact(record.numel_out // record.numel_in, [record.event])
        if record.op and "REDUCE_SCATTER" in record.op and record.numel_in and record.numel_out:
            return Fact(record.numel_in // record.numel_out, [record.event])
    return None


def _same_place(records: list[Stuck]) -> dict[tuple[str | None, int], list[Stuck]]:
    places: dict[tuple[str | None, int], list[Stuck]] = {}
    # Only some lines name their group: where no second one is named, all belong to it.
    one_group = len({record.group for record in records if record.group}) <= 1
    for record in records:
        if record.seq is not None and record.op is not None:
            places.setdefault((None if one_group else record.group, record.seq), []).append(record)
    return places


@fact("collective.shape_mismatch", "at one sequence number ranks run different operations or sizes: the minority ranks")
def _shape_mismatch(case: Case) -> Fact | None:
    for records in _same_place(case.value("collective.stuck") or []).values():
        shapes = Counter(shape_of(record) for record in records)
        if len(shapes) > 1:
            common, number = shapes.most_common(1)[0]
            odd = [r for r in records if shape_of(r) != common] if number * 2 > len(records) else records
            ranks = sorted({r.rank for r in odd if r.rank is not None})
            return Fact(ranks or [-1], [r.event for r in odd][:3] + [r.event for r in records][:2])
    return None


@fact("collective.op_mismatch", "at one sequence number ranks run different operations (not only sizes)")
def _op_mismatch(case: Case) -> Fact | None:
    for records in _same_place(case.value("collective.stuck") or []).values():
        if len({record.op for record in records}) > 1:
            return Fact(True, [record.event for record in records][:4])
    return None


@fact("collective.seq_differs", "ranks of one group are stuck at different sequence numbers: the spread")
def _seq_differs(case: Case) -> Fact | None:
    records = [r for r in case.value("collective.stuck") or [] if r.seq is not None]
    groups = {r.group for r in records if r.group}
    numbers = {r.seq for r in records}
    if len(groups) > 1 or len(numbers) < 2:
        return None
    spread = max(n for n in numbers if n is not None) - min(n for n in numbers if n is not None)
    if spread > _SAME_GROUP_SPREAD:
        return None  # different groups that the lines do not tell apart
    return Fact(spread, [record.event for record in records][:4])


@fact("collective.odd_ranks", "the minority among ranks stuck at different sequence numbers")
def _odd_ranks(case: Case) -> Fact | None:
    if case.fact("collective.seq_differs") is None:
        return None
    records = [r for r in case.value("collective.stuck") or [] if r.seq is not None and r.rank is not None]
    counted = Counter(r.seq for r in records)
    if len(counted) < 2 or counted.most_common(1)[0][1] * 2 <= len(records):
        return None
    common = counted.most_common(1)[0][0]
    odd = [r for r in records if r.seq != common]
    return Fact(sorted({r.rank for r in odd if r.rank is not None}), [r.event for r in odd][:3])


@fact("collective.behind_ranks", "ranks whose last enqueued number is below the one that others are stuck at")
def _behind(case: Case) -> Fact | None:
    records = [r for r in case.value("collective.stuck") or [] if r.seq is not None]
    if not records:
        return None
    by_group: dict[str | None, list[Stuck]] = {}
    for record in records:
        by_group.setdefault(record.group, []).append(record)
    for members in by_group.values():
        stuck_at = min(r.seq for r in members if r.seq is not None)
        behind = [r for r in members if r.enqueued is not None and r.enqueued < stuck_at and r.rank is not None]
        if behind:
            return Fact(sorted({r.rank for r in behind if r.rank is not None}), [r.event for r in behind][:3])
    observed = [e for e in case.of("collective.notified") if case.rank(e) is not None]
    timed_out = {r.rank for r in records}
    ranks = sorted({r for e in observed if (r := case.rank(e)) is not None and r not in timed_out})
    if ranks and len(ranks) <= max(1, len(timed_out)):
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
