"""Ranks that call different collectives: DETAIL fingerprints, Gloo size checks, NCCL's own call traces.

With ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` every rank compares its fingerprint with the others': in ``Rank a is running X,
but Rank b is running Y`` a is the printing rank and b the lowest rank that differs. With one odd rank every good rank
names it, so the rank named most often in place b is the culprit; two ranks alone have no majority.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.events import Event

FINGERPRINT = ("torch.collective_mismatch",)
SIZE = ("gloo.enforce_size", "gloo.size_mismatch")
CALLS = ("nccl.coll_call",)


@fact("mismatch.named_ranks", "the ranks that fingerprint comparisons name as running another collective")
def _named(case: Case) -> Fact | None:
    counted: Counter[int] = Counter()
    events = case.of(*FINGERPRINT)
    for event in events:
        other = event.number("other_rank") or event.number("peer_rank") or event.number("rank_b")
        if other is not None:
            counted[int(other)] += 1
        elif "other_rank" in event.fields:
            counted[0] += 1
    if not counted:
        return None
    best, number = counted.most_common(1)[0]
    runner = counted.most_common(2)[1][1] if len(counted) > 1 else 0
    return Fact([best] if number > runner else sorted(counted), events[:4])


@fact("mismatch.call_ranks", "ranks whose NCCL call trace differs from the majority at one opCount")
def _calls(case: Case) -> Fact | None:
    places: dict[str, list[tuple[tuple[str | None, ...], Event]]] = defaultdict(list)
    for event in case.of(*CALLS):
        opcount = event.fields.get("opcount")
        if opcount:
            shape = (event.fields.get("op"), event.fields.get("count"), event.fields.get("datatype"))
            places[opcount].append((shape, event))
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


@fact("mismatch.culprit_ranks", "the ranks that run another collective than the majority, by the best witness")
def _culprits(case: Case) -> Fact | None:
    for name in ("mismatch.named_ranks", "mismatch.call_ranks", "collective.shape_mismatch"):
        found = case.fact(name)
        if found is not None and found.value and found.value != [-1]:
            return found
    aborted = case.fact("process.aborted_ranks")
    if case.of(*SIZE) and aborted is not None and aborted.value:
        # The rank that received too much data aborts: its own buffer is the small one, its peers see a reset.
        return aborted
    return None


@fact("mismatch.any", "some witness shows ranks in different collectives")
def _any(case: Case) -> Fact | None:
    events = case.of(*FINGERPRINT, *SIZE)
    if events:
        return Fact(True, events[:4])
    for name in ("mismatch.call_ranks", "collective.shape_mismatch"):
        found = case.fact(name)
        if found is not None:
            return Fact(True, found.events)
    return None
