"""Whom Horovod's stall check names: the ranks that have not submitted what others wait for."""

from __future__ import annotations

from collections import defaultdict

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.events import Event
from nccl_triage.numbers import whole


@fact(
    "collective.horovod_missing_ranks",
    "the ranks that Horovod's stall check names, or the fewest that lack other tensors than the rest",
)
def _missing(case: Case) -> Fact | None:
    events = case.having("collective.waiting", ranks_are="missing")
    lacks: dict[int, set[str]] = defaultdict(set)
    for event in events:
        number = event.number("rank")
        if number is not None:
            lacks[int(number)].add(event.fields.get("name", "").rsplit(".", 1)[0].rstrip("0123456789_"))
        for part in event.fields.get("ranks", "").split(","):
            if (rank := whole(part.strip(" !"))) is not None:
                lacks[rank].add("")
    ready = case.having("collective.waiting", "others", ranks_are="ready")
    for event in ready:
        first, other = (_numbers(event.fields.get(name, "")) for name in ("ranks", "others"))
        if not first & other:
            for ranks, tensor in ((other, "first"), (first, "other")):
                for rank in ranks:
                    lacks[rank].add(tensor)
    waiting = [e for e in case.having("collective.waiting", ranks_are="ready") if "others" not in e.fields]
    if not events and not ready and waiting:
        return _never_ready(case, [_numbers(event.fields.get("ranks", "")) for event in waiting], waiting)
    groups: dict[frozenset[str], list[int]] = defaultdict(list)
    for rank, names in lacks.items():
        groups[frozenset(names)].append(rank)
    ordered = sorted(groups.values(), key=len)
    # Two groups of one size blame each other.
    if not ordered or (len(ordered) > 1 and len(ordered[0]) == len(ordered[1])):
        return None
    return Fact(sorted(ordered[0]), [*events, *ready][:3])


def _never_ready(case: Case, lists: list[set[int]], events: list[Event]) -> Fact | None:
    """Return the ranks that none of the lists of the ready ones names: fewer than the ready ones, and the same each time."""
    size = max(case.identity.world_size or 0, max(set[int]().union(*lists), default=-1) + 1)
    missing = [rank for rank in range(min(size, 4096)) if not any(rank in ranks for ranks in lists)]
    same = all(ranks == lists[0] for ranks in lists)
    return Fact(missing, events[:3]) if same and missing and len(missing) < len(lists[0]) else None


def _numbers(listed: str) -> set[int]:
    return {rank for part in listed.split(",") if (rank := whole(part.strip())) is not None}
