"""Ranks that call different collectives, by fingerprints, sizes of data, call traces and tracebacks.

With ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` every rank compares its fingerprint with those of the others. In ``Rank a is running
X, but Rank b is running Y`` a is the printing rank and b the lowest rank that differs, so all ranks below b call what a
calls (ProcessGroupWrapper.cpp). Together the lines divide the ranks into sides. Two ranks alone have no majority.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.recorder.lines import spans
from nccl_triage.story.differences import minority
from nccl_triage.story.exceptions import is_communication, tracebacks
from nccl_triage.story.group_ranks import of_job

#: Collectives to which every rank must pass a tensor of the same shape.
_SAME_SHAPE = ("ALLREDUCE", "BROADCAST", "REDUCE", "BARRIER", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")


def _other_sizes(case: Case) -> list[Event]:
    """Return the lines of ranks that received more or less data than fits their buffer."""
    return case.having("collective.mismatch", "expected", "value")


@fact("mismatch.named_ranks", "the ranks that fingerprint comparisons name as running another collective")
def _named(case: Case) -> Fact | None:
    sides = _Sides()
    called: dict[str, int | None] = {}
    events = case.having("collective.mismatch", counts="fingerprint")
    for event in events:
        printer, other = event.number("rank"), event.number("peer_rank")
        if printer is None or other is None:
            continue
        own, peer = of_job(case, event, int(printer)), of_job(case, event, int(other))
        for number in range(
            min(int(other), _MAX_NUMBER)
        ):  # the line names the first rank that differs, so those before it do not
            sides.join(own, of_job(case, event, number))
        calls = _FINGERPRINT.findall(event.text)
        if len(set(calls)) == _PAIR:  # equal ones differ in a part that is not compared
            for rank, call in zip((own, peer), calls, strict=True):
                sides.join(called.setdefault(call, rank), rank)
        sides.part(own, peer)
    values = sides.values()
    odd = minority(values, case.presence.unheard(values))
    return Fact(sorted(odd), events[:4]) if odd else None


#: Highest rank number that is read from a line with fingerprints.
_MAX_NUMBER = 4096
#: The call in a fingerprint, without the devices of its tensors.
_FINGERPRINT = lazily(r"CollectiveFingerPrint\((.{1,600}?)(?:, TensorDeviceTypes|\)\.Collectives|\), but|\)$)")


class _Sides:
    """A partition of the ranks by what they call, built from comparisons of two ranks."""

    def __init__(self) -> None:
        self._of: dict[int, int] = {}

    def part(self, first: int | None, second: int | None) -> None:
        """Note that two ranks call different collectives."""
        for rank in (first, second):
            if rank is not None:
                self._of.setdefault(rank, rank)

    def join(self, first: int | None, second: int | None) -> None:
        """Note that two ranks call the same collective."""
        self.part(first, second)
        if first is not None and second is not None:
            one, other = self._side(first), self._side(second)
            self._of[max(one, other)] = min(one, other)

    def values(self) -> dict[int, int]:
        """Return the side of each rank, identified by the lowest rank on it."""
        return {rank: self._side(rank) for rank in sorted(self._of)}

    def _side(self, rank: int) -> int:
        while self._of[rank] != rank:
            rank = self._of[rank]
        return rank


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
    # A process counts the calls of each communicator separately, so with several of one size its lines cannot be compared.
    several = {(count, nranks) for (count, nranks, _), found in comms.items() if len(found) > 1}
    for place in several:
        places.pop(place, None)
    # More processes than a communicator has ranks belong to several, which call what they like.
    processes: dict[tuple[str, str | None], int] = Counter((count, nranks) for count, nranks, _ in comms)
    for place, number in processes.items():
        if (whole(place[1]) or number) < number:
            places.pop(place, None)
    for calls in places.values():
        apart = minority({number: shape for number, (shape, _) in enumerate(calls)}, case.presence.unheard())
        if not apart:
            continue
        odd = [calls[number][1] for number in apart]
        ranks = [r for e in odd if (r := _rank_or_device(case, e)) is not None]
        rest = [event for number, (_, event) in enumerate(calls) if number not in apart] or odd
        return Fact(sorted(set(ranks)) or [-1], odd[:3] + rest[:1])
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
        return None  # the lines do not name their process group, and ranks of different groups must not be compared
    (common, number), (other, one) = shapes.most_common(2)
    if one != 1 or number < 2 or (common[0] == other[0] and common[0] not in _SAME_SHAPE):
        return None
    odd = next(rank for rank, (_, shape, _) in last.items() if shape == other)
    return Fact([odd], [last[odd][2], *(e for rank, (_, _, e) in last.items() if rank != odd)][:3])


@fact(
    "mismatch.culprit_ranks",
    "the ranks that run another collective than the majority, by the best witness",
    blames=("runs a different collective than the majority", "执行的集合操作与多数 rank 不同"),
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
    receivers = case.fact("mismatch.receiver_ranks")
    if receivers is not None and case.value("process.aborted_ranks"):
        return receivers
    crossed = case.fact("mismatch.crossed_ranks")
    if crossed is not None:
        return crossed if len(crossed.value) < len(communication_frames(case)) else None
    for name in ("mismatch.other_root_ranks", "mismatch.elsewhere_ranks"):
        found = case.fact(name)
        # If the ranks are divided in halves, nobody stands out, unless there are only two ranks.
        few = found is not None and (len(found.value) <= _PAIR or len(found.value) < len(case.identity.ranks))
        if found is not None and few and not (receivers and _in_smaller_group(case, found.value)):
            return found
    return receivers


def _in_smaller_group(case: Case, ranks: Sequence[int]) -> bool:
    """Tell whether ranks failed in calls that pass a process group: then they stand elsewhere because of it."""
    frames = communication_frames(case)
    fields = [frames[rank][1].fields for rank in ranks if rank in frames]
    return bool(fields) and all("collective" in one and one.get("members") != "all" for one in fields)


@fact("mismatch.receiver_ranks", "the ranks that aborted because they received more data than their buffer holds")
def _receivers(case: Case) -> Fact | None:
    told = _other_sizes(case)
    aborted = case.fact("process.aborted_ranks")
    if told and aborted is not None and aborted.value:
        return aborted  # its peers see a reset connection
    ranks = case.ranks(told)
    # Without lines of a launcher its last line tells that it aborted.
    return (
        Fact(ranks, told[:2])
        if len(ranks) == 1 and case.of("process.crash") and not case.value("process.exits")
        else None
    )


#: Collective with a root -> the words in the timeout of a rank that expects another root. The root says otherwise.
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
    if len(left) != _PAIR or len(set(left.values())) != 1 or len(calls) <= _PAIR or case.presence.unheard():
        return None  # ranks that are not in the input may also wait in it
    word = _ROOTED[next(iter(left.values())) or ""]
    told = {rank: frames[rank][1].fields.get("message", "") for rank in left}
    odd = [rank for rank, message in told.items() if word in message]
    if len(odd) != 1 or not all("send operation" in text or "recv operation" in text for text in told.values()):
        return None
    return Fact(odd, [frames[odd[0]][1], *(frames[rank][1] for rank in left if rank != odd[0])])


@fact("mismatch.tag_ranks", "ranks whose checkpoint name differs from the majority")
def _tags(case: Case) -> Fact | None:
    found = {
        rank: event for event in case.having("collective.mismatch", "name") if (rank := case.rank(event)) is not None
    }
    odd = minority({rank: event.fields["name"] for rank, event in found.items()}, case.presence.unheard())
    return Fact(sorted(odd), [found[rank] for rank in odd][:2]) if 0 < len(odd) < len(found) else None


def communication_frames(case: Case) -> dict[int, tuple[str, Event]]:
    """Return the innermost user frame of each rank when its communication failed, with the traceback."""
    found: dict[int, tuple[str, Event]] = {}
    for event in tracebacks(case):
        rank, frames = case.rank(event), event.fields.get("user_frames", "")
        if rank is not None and frames and is_communication(event):
            found.setdefault(rank, (frames.splitlines()[-1], event))
    return found


#: Collectives that no rank completes before all have entered. A rank in another one has skipped or added a call.
_NEED_ALL = {
    "ALLREDUCE", "ALLGATHER", "_ALLGATHER_BASE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE", "BARRIER", "ALLTOALL", "ALLTOALL_BASE",
}  # fmt: skip


def _call_of(event: Event) -> str | None:
    """Return the collective of a traceback, by its line of code or by the function that raised."""
    name = event.fields.get("collective") or event.fields.get("raised_in", "").rpartition("distributed_c10d.py ")[2]
    return OP_OF_CALL.get(name)


def _other_call(case: Case, frames: dict[int, tuple[str, Event]]) -> Fact | None:
    """Return the minority in another collective below the same line of the user's code, such as a wrapped model."""
    calls = {rank: _call_of(event) for rank, (_, event) in frames.items()}
    kinds = set(calls.values())
    if len(kinds) != 2 or not all(call in _NEED_ALL for call in kinds):
        return None
    odd = minority(calls, case.presence.unheard())
    return Fact(sorted(odd), [frames[rank][1] for rank in odd][:3]) if len(odd) < len(frames) else None


@fact(
    "mismatch.elsewhere_ranks",
    "ranks whose communication failed at another line of the user's code than the majority's",
)
def _elsewhere(case: Case) -> Fact | None:
    frames = communication_frames(case)
    places = {frame for frame, _ in frames.values()}
    if len(places) == 1:
        return _other_call(case, frames)
    if {_call_of(event) for _, event in frames.values()} <= {"SEND", "RECV"}:
        return None  # the stages of a pipeline stand at different lines anyway
    if len(places) != 2:
        return None  # many places are those of a pipeline, or of ranks that are tearing down
    if len(case.value("progress.silent_ranks") or ()) == 1:
        return None  # those at another line wait in another group, where the one that says nothing is missing
    odd = minority({rank: frame for rank, (frame, _) in frames.items()}, case.presence.unheard())
    return Fact(sorted(odd), [frames[rank][1] for rank in odd][:3])


@fact(
    "mismatch.crossed_ranks",
    "ranks that gave up in a collective of all ranks while others waited for them in another one; all if nobody is odd",
)
def _crossed(case: Case) -> Fact | None:
    frames, timed_out = communication_frames(case), case.value("collective.timed_out_ranks") or []
    first = {rank: found for rank, found in frames.items() if rank in timed_out}
    lost = {rank: found for rank, found in frames.items() if rank not in timed_out}
    places = {frame for frame, _ in first.values()}
    # Who waits for all ranks waits for those that lose it when it gives up; they stand where none of them gave up.
    if len(frames) <= _PAIR or len(places) != 1 or not lost or any(frame in places for frame, _ in lost.values()):
        return None
    if any(event.fields.get("members") != "all" for _, event in first.values()):
        return None
    if not all(_call_of(event) in _NEED_ALL for _, event in frames.values()):
        return None
    # Who is left alone in a smaller group may be right: one of its members is among those that went on.
    of_all = all(event.fields.get("members") == "all" for _, event in lost.values())
    odd = minority({rank: rank in first for rank in frames}, case.presence.unheard())
    ranks = odd if of_all or not lost.keys() & set(odd) else frames
    return Fact(sorted(ranks), [event for group in (first, lost) for _, event in group.values()][:4])


@fact("mismatch.crossed_sides", "who waits in which collective where ranks of one job wait for each other like this")
def _crossed_sides(case: Case) -> Fact | None:
    crossed = case.fact("mismatch.crossed_ranks")
    if crossed is None:
        return None
    standing: dict[str, list[int]] = defaultdict(list)
    for rank, (frame, event) in communication_frames(case).items():
        place = frame.partition(" ")[0].rpartition("/")[2]
        standing[f"{event.fields.get('collective') or _call_of(event)} ({place})"].append(rank)
    told = [f"rank {spans(sorted(ranks))} in {call}" for call, ranks in standing.items()]
    return Fact(", ".join(told[:_PLACES]), crossed.events)


#: Places at which ranks wait that are told.
_PLACES = 3
_P2P = {"recv": "recv", "irecv": "recv", "send": "send", "isend": "send"}


def _message_calls(case: Case) -> dict[int, tuple[str, Event]]:
    """Return the ranks whose traceback stands in a point-to-point call, with the direction of the call."""
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
    blames=("waits in a send or receive that was never matched", "停在一条从未与对端配对的消息上"),
)
def _unmet_pair(case: Case) -> Fact | None:
    calls = _message_calls(case)
    timed_out = set(case.value("collective.timed_out_ranks") or [])
    if sorted(kind for kind, _ in calls.values()) != ["recv", "send"] or not timed_out >= set(calls):
        return None
    first, last = sorted(calls)
    # The stages of a pipeline pass data to their neighbours. Both ends wait for the stage between them.
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


@fact("mismatch.any", "something shows ranks in different collectives")
def _any(case: Case) -> Fact | None:
    events = [*case.having("collective.mismatch", counts="fingerprint"), *_other_sizes(case)]
    if events:
        return Fact(True, events[:4])
    for name in ("mismatch.fingerprint_ranks", "mismatch.call_ranks", "collective.shape_mismatch"):
        found = case.fact(name)
        if found is not None:
            return Fact(True, found.events)
    return None


#: Function of torch.distributed (distributed_c10d.py) -> OpType as ProcessGroupNCCL logs it.
OP_OF_CALL = {
    "broadcast": "BROADCAST",
    "all_reduce": "ALLREDUCE",
    "all_reduce_coalesced": "ALLREDUCE_COALESCED",
    "reduce": "REDUCE",
    "all_gather": "ALLGATHER",
    "all_gather_object": "ALLGATHER",
    "all_gather_into_tensor": "_ALLGATHER_BASE",
    "_all_gather_base": "_ALLGATHER_BASE",
    "all_gather_single": "_ALLGATHER_BASE",
    "reduce_scatter": "REDUCE_SCATTER",
    "reduce_scatter_tensor": "_REDUCE_SCATTER_BASE",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
    "reduce_scatter_single": "_REDUCE_SCATTER_BASE",
    "all_to_all": "ALLTOALL",
    "all_to_all_single": "ALLTOALL_BASE",
    "broadcast_object_list": "BROADCAST",
    "send": "SEND",
    "recv": "RECV",
    "batch_isend_irecv": "COALESCED",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "barrier": "BARRIER",
    "monitored_barrier": "BARRIER",
    "init_process_group": "INIT",
}


@fact("collective.called", "the operation that most tracebacks are in, by the torch.distributed call in a frame")
def _called(case: Case) -> Fact | None:
    events = [e for e in tracebacks(case) if e.fields.get("collective") in OP_OF_CALL]
    if not events:
        return None
    name = Counter(event.fields["collective"] for event in events).most_common(1)[0][0]
    return Fact(OP_OF_CALL[name], [event for event in events if event.fields["collective"] == name][:4])
