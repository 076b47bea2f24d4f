"""Ranks that call different collectives: DETAIL fingerprints, Gloo size checks, NCCL's own call traces.

With ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` every rank compares its fingerprint with the others': in ``Rank a is running X,
but Rank b is running Y`` a is the printing rank and b the lowest rank that differs. With one odd rank every good rank
names it, so the rank named most often in place b is the culprit; two ranks alone have no majority.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.facts.called import OP_OF_CALL
from nccl_triage.observations.event import Event
from nccl_triage.story.exceptions import is_communication, tracebacks
from nccl_triage.story.group_ranks import of_job

#: Collectives in which every rank must bring a tensor of the same shape.
_SAME_SHAPE = ("ALLREDUCE", "BROADCAST", "REDUCE", "BARRIER", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")


def _other_sizes(case: Case) -> list[Event]:
    """Return the lines of ranks that received more or less data than their own buffer holds."""
    return case.having("collective.mismatch", "expected", "value")


@fact("mismatch.named_ranks", "the ranks that fingerprint comparisons name as running another collective")
def _named(case: Case) -> Fact | None:
    counted: Counter[int] = Counter()
    events = case.having("collective.mismatch", counts="fingerprint")
    printers: set[int] = set()
    for event in events:
        number, printer = event.number("peer_rank"), event.number("rank")
        other = of_job(case, event, int(number)) if number is not None else None
        if other is not None:
            counted[other] += 1
            if printer is not None and (own := of_job(case, event, int(printer))) is not None:
                printers.add(own)
    if not counted:
        return None
    if list(counted) == [0] and len(printers) == 1:
        # One line only: either rank 0 is odd and the others' lines are lost, or the printer is odd and names rank 0.
        return Fact([*printers, 0], events[:4])
    best, number = counted.most_common(1)[0]
    runner = counted.most_common(2)[1][1] if len(counted) > 1 else 0
    return Fact([best] if number > runner else sorted(counted), events[:4])


@fact("mismatch.call_ranks", "ranks whose NCCL call trace differs from the majority at one opCount")
def _calls(case: Case) -> Fact | None:
    places: dict[tuple[str, str | None], list[tuple[tuple[str | None, ...], Event]]] = defaultdict(list)
    comms: dict[tuple[str, str | None, object], set[str | None]] = defaultdict(set)
    for event in case.having("collective.counters", "op_count"):
        count = event.fields.get("op_count")
        if count:
            shape = (event.fields.get("op"), event.fields.get("count"), event.fields.get("datatype"))
            place = (count, event.fields.get("nranks"))
            places[place].append((shape, event))
            owner = (*place, event.context.process_key())
            comms[owner].add(event.fields.get("comm"))
    # A process with several communicators of one size counts each on its own: its lines cannot be compared.
    several = {(count, nranks) for (count, nranks, _), found in comms.items() if len(found) > 1}
    for place in several:
        places.pop(place, None)
    for calls in places.values():
        shapes = Counter(shape for shape, _ in calls)
        if len(shapes) < 2:
            continue
        common, number = shapes.most_common(1)[0]
        odd = [e for shape, e in calls if shape != common] if number * 2 > len(calls) else [e for _, e in calls]
        ranks = [r for e in odd if (r := _rank_or_device(case, e)) is not None]
        return Fact(sorted(set(ranks)) or [-1], odd[:3] + [e for shape, e in calls if shape == common][:1])
    return None


def _rank_or_device(case: Case, event: Event) -> int | None:
    rank = case.rank(event)
    return rank if rank is not None else event.context.gpu


@fact("mismatch.fingerprint_ranks", "the rank whose own last fingerprint differs from that of all others at one number")
def _own_fingerprints(case: Case) -> Fact | None:
    last: dict[int, tuple[str, tuple[str | None, ...], Event]] = {}
    for event in case.having("collective.counters", "seq", "shape", "dtype"):
        rank, seq = case.rank(event), event.fields.get("seq")
        if rank is not None and seq is not None and "Running collective:" in event.text:
            shape = (event.fields.get("op"), event.fields.get("shape"), event.fields.get("dtype"))
            last[rank] = (seq, shape, event)
    shapes = Counter(shape for _, shape, _ in last.values())
    if len({seq for seq, _, _ in last.values()}) != 1 or len(shapes) != 2:
        return None  # the lines do not name their process group: ranks of several groups must not be compared
    (common, number), (other, one) = shapes.most_common(2)
    if one != 1 or number < 2 or (common[0] == other[0] and common[0] not in _SAME_SHAPE):
        return None
    odd = next(rank for rank, (_, shape, _) in last.items() if shape == other)
    return Fact([odd], [last[odd][2], *(e for rank, (_, _, e) in last.items() if rank != odd)][:3])


@fact(
    "mismatch.culprit_ranks",
    "the ranks that run another collective than the majority, by the best witness",
    blames=("runs another collective than the majority", "执行的集合操作与多数 rank 不同"),
)
def _culprits(case: Case) -> Fact | None:
    for name in (
        "mismatch.named_ranks",
        "mismatch.fingerprint_ranks",
        "mismatch.call_ranks",
        "collective.shape_mismatch",
    ):
        found = case.fact(name)
        if found is not None and found.value and found.value != [-1]:
            return found
    aborted = case.fact("process.aborted_ranks")
    if _other_sizes(case) and aborted is not None and aborted.value:
        # The rank that received too much data aborts: its own buffer is the small one, its peers see a reset.
        return aborted
    for name in ("mismatch.other_root_ranks", "mismatch.elsewhere_ranks", "mismatch.aborted_alone"):
        found = case.fact(name)
        # Where half of the ranks stand here and half there, everybody and so nobody is odd; of two ranks one is.
        if found is not None and (len(found.value) <= _PAIR or len(found.value) < len(case.identity.ranks)):
            return found
    receivers = case.ranks(_other_sizes(case))
    if len(receivers) == 1 and case.of("process.crash") and not case.value("process.exits"):
        return Fact(receivers, _other_sizes(case)[:2])  # without a launcher's lines its last words tell the same
    return None


#: A collective with a root -> the word by which the time-out of the rank with another root is told from that of the root.
_ROOTED = {"BROADCAST": "recv operation", "SCATTER": "recv operation", "GATHER": "send operation"}
_PAIR = 2


@fact(
    "mismatch.other_root_ranks",
    "the rank that waits for another root: of the two that are left in a collective with a root, the one that the root waits for",
)
def _other_root(case: Case) -> Fact | None:
    frames = communication_frames(case)
    calls = {rank: _call_of(event) for rank, (_, event) in frames.items()}
    left = {rank: call for rank, call in calls.items() if call in _ROOTED}
    if len(left) != _PAIR or len(set(left.values())) != 1 or len(calls) <= _PAIR:
        return None
    word = _ROOTED[next(iter(left.values())) or ""]
    told = {rank: frames[rank][1].fields.get("message", "") for rank in left}
    odd = [rank for rank, message in told.items() if word in message]
    if len(odd) != 1 or not all("send operation" in text or "recv operation" in text for text in told.values()):
        return None
    return Fact(odd, [frames[odd[0]][1], *(frames[rank][1] for rank in left if rank != odd[0])])


@fact("mismatch.aborted_alone", "the rank that received data of another size, while all others stood at one line")
def _aborted_alone(case: Case) -> Fact | None:
    frames = communication_frames(case)
    events = _other_sizes(case)
    ranks = case.ranks(events)
    # Were it one of the majority, the rank that called something else would stand at another line.
    if len(ranks) != 1 or ranks[0] in frames or len(frames) < 2 or len({frame for frame, _ in frames.values()}) != 1:
        return None
    return Fact(ranks, events[:2]) if set(case.identity.ranks) == {*frames, *ranks} else None


@fact("mismatch.tag_ranks", "ranks that name their checkpoint otherwise than the majority")
def _tags(case: Case) -> Fact | None:
    found = {
        rank: event for event in case.having("collective.mismatch", "name") if (rank := case.rank(event)) is not None
    }
    counted = Counter(event.fields["name"] for event in found.values())
    if len(counted) != 2 or len(found) < 3:
        return None
    common = counted.most_common(1)[0][0]
    odd = {rank: event for rank, event in found.items() if event.fields["name"] != common}
    return Fact(sorted(odd), list(odd.values())[:2]) if len(odd) * 2 < len(found) else None


def communication_frames(case: Case) -> dict[int, tuple[str, Event]]:
    """Return where each rank's own code stood when its communication failed: the innermost user frame."""
    found: dict[int, tuple[str, Event]] = {}
    for event in tracebacks(case):
        rank, frames = case.rank(event), event.fields.get("user_frames", "")
        if rank is not None and frames and is_communication(event):
            found.setdefault(rank, (frames.splitlines()[-1], event))
    return found


#: Collectives that end nowhere before all have come: who stands in another one has left out or added one.
_NEED_ALL = {
    "ALLREDUCE", "ALLGATHER", "_ALLGATHER_BASE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE", "BARRIER", "ALLTOALL", "ALLTOALL_BASE",
}  # fmt: skip


def _call_of(event: Event) -> str | None:
    """Return the collective that a traceback stands in, by its line of code or by the function that raised."""
    name = event.fields.get("collective") or event.fields.get("raised_in", "").rpartition("distributed_c10d.py ")[2]
    return OP_OF_CALL.get(name)


def _other_call(frames: dict[int, tuple[str, Event]]) -> Fact | None:
    """Return the minority that stands in another collective below the same line of the user's code (a wrapped model)."""
    calls = {rank: _call_of(event) for rank, (_, event) in frames.items()}
    counted = Counter(calls.values())
    if len(counted) != 2 or not all(call in _NEED_ALL for call in counted):
        return None
    common, number = counted.most_common(1)[0]
    odd = [rank for rank, call in calls.items() if call != common]
    return Fact(sorted(odd), [frames[rank][1] for rank in odd][:3]) if number * 2 > len(frames) else None


@fact(
    "mismatch.elsewhere_ranks",
    "ranks whose communication failed at another line of the user's code than the majority's",
)
def _elsewhere(case: Case) -> Fact | None:
    frames = communication_frames(case)
    counted = Counter(frame for frame, _ in frames.values())
    if len(counted) == 1:
        return _other_call(frames)
    if {_call_of(event) for _, event in frames.values()} <= {"SEND", "RECV"}:
        return None  # stages of a pipeline stand at different lines by nature
    if len(counted) != 2:
        return None  # one place: nothing to see; many places: a pipeline, or a race while tearing down
    common, number = counted.most_common(1)[0]
    odd = (
        {r: e for r, (frame, e) in frames.items() if frame != common}
        if number * 2 > len(frames)
        else {r: e for r, (_, e) in frames.items()}
    )
    return Fact(sorted(odd), [*odd.values()][:3])


_P2P = {"recv": "recv", "irecv": "recv", "send": "send", "isend": "send"}


def _message_calls(case: Case) -> dict[int, tuple[str, Event]]:
    """Return the ranks of which a traceback stands in a point-to-point call, and whether that sends or receives."""
    calls: dict[int, tuple[str, Event]] = {}
    for event in case.having("exception.frame", "path"):
        rank = case.rank(event)
        if (
            rank is not None
            and event.fields.get("path", "").endswith("distributed_c10d.py")
            and event.fields.get("name") in _P2P
        ):
            calls[rank] = (_P2P[event.fields["name"]], event)
    return calls


@fact(
    "mismatch.unmet_pair",
    "on one host, the only rank that timed out in a send and the only one that did in a receive",
    blames=("waits in a message that never met its counterpart", "停在一条从未与对端配对的消息上"),
)
def _unmet_pair(case: Case) -> Fact | None:
    calls = _message_calls(case)
    timed_out = set(case.value("collective.timed_out_ranks") or [])
    if sorted(kind for kind, _ in calls.values()) != ["recv", "send"] or not timed_out >= set(calls):
        return None
    first, last = sorted(calls)
    # Stages hand on to their neighbours: whom both ends wait for is the one between them, which stands elsewhere.
    ranks = [first + 1] if last - first == 2 else [first, last]
    return Fact(ranks, [event for _, event in calls.values()]) if case.identity.single_host else None


@fact(
    "mismatch.all_wait_in", "every rank waits in a point-to-point receive (or every rank in a send): which of the two"
)
def _all_wait(case: Case) -> Fact | None:
    calls = _message_calls(case)
    for record in case.value("collective.stuck") or []:
        if record.rank is not None and record.op in ("RECV", "SEND"):
            calls[record.rank] = (record.op.lower(), record.event)
    world = case.identity.world_size or len(case.identity.ranks)
    kinds = {kind for kind, _ in calls.values()}
    timed_out = set(case.value("collective.timed_out_ranks") or [])
    if len(calls) < 2 or len(calls) < world or len(kinds) != 1 or not timed_out >= set(calls):
        return None
    return Fact(kinds.pop(), [event for _, event in calls.values()][:3])


@fact("mismatch.any", "some witness shows ranks in different collectives")
def _any(case: Case) -> Fact | None:
    events = [*case.having("collective.mismatch", counts="fingerprint"), *_other_sizes(case)]
    if events:
        return Fact(True, events[:4])
    for name in ("mismatch.fingerprint_ranks", "mismatch.call_ranks", "collective.shape_mismatch"):
        found = case.fact(name)
        if found is not None:
            return Fact(True, found.events)
    return None
