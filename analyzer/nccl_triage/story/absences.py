"""Ranks that others name as not arrived: by monitored barriers, reports of desync, dumps, stall checks of Horovod.

Each of these numbers ranks in its own way; the results are ranks of the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nccl_triage.numbers import listed, whole
from nccl_triage.observations.event import Event
from nccl_triage.story.group_ranks import of_job
from nccl_triage.story.view import View

#: Limit of ranks: a log of a larger job shows only some of them.
_MANY = 4096

#: Ranks, and the lines that name them.
Named = tuple[list[int], Sequence[Event]]


def absent(view: View) -> Named | None:
    """Return the ranks of the job that are named as not arrived, None if there are none."""
    events = [event for event in view.of("collective.absent") if event.is_failure] or _last_named(view)
    named = {of_job(view, event, number) for event in events for number in _named(event)}
    ranks = sorted(rank for rank in named if rank is not None)
    return (ranks, events) if ranks else _by_stall_check(view)


def _named(event: Event) -> list[int]:
    """Return the ranks that a line names as absent, as it numbers them."""
    text = next((value for name, value in event.fields.items() if name.startswith("ranks") and value), None)
    if text:
        return listed(text)
    number = event.number("peer_rank")
    if number is None:
        number = event.number("rank")
    return [int(number)] if number is not None else []


def _last_named(view: View) -> list[Event]:
    """Return the last lines in which the program itself names who is missing, if the job made no progress after them."""
    named = [event for event in view.of("collective.absent") if not event.is_failure]
    if not named or not view.failures:
        return []
    position = view.position(named[-1])
    if view.order_known and any(e.role == "progress" and view.position(e) > position for e in view.events):
        return []
    return [event for event in named if _named(event) == _named(named[-1])]


def _by_stall_check(view: View) -> Named | None:
    """Return the ranks that Horovod's stall check names, or the smallest group that lacks other tensors than the rest."""
    events = view.having("collective.waiting", ranks_are="missing")
    lacks: dict[int, set[str]] = defaultdict(set)
    for event in events:
        number = event.number("rank")
        if number is not None:
            lacks[int(number)].add(event.fields.get("name", "").rsplit(".", 1)[0].rstrip("0123456789_"))
        for part in event.fields.get("ranks", "").split(","):
            if (rank := whole(part.strip(" !"))) is not None:
                lacks[rank].add("")
    ready = view.having("collective.waiting", "others", ranks_are="ready")
    for event in ready:
        first, other = (set(listed(event.fields.get(name, ""))) for name in ("ranks", "others"))
        if not first & other:
            for ranks, tensor in ((other, "first"), (first, "other")):
                for rank in ranks:
                    lacks[rank].add(tensor)
    waiting = [e for e in view.having("collective.waiting", ranks_are="ready") if "others" not in e.fields]
    if not events and not ready and waiting:
        return _never_ready(view, [set(listed(event.fields.get("ranks", ""))) for event in waiting], waiting)
    groups: dict[frozenset[str], list[int]] = defaultdict(list)
    for rank, names in lacks.items():
        groups[frozenset(names)].append(rank)
    ordered = sorted(groups.values(), key=len)
    # Two groups of equal size accuse each other.
    if not ordered or (len(ordered) > 1 and len(ordered[0]) == len(ordered[1])):
        return None
    return sorted(ordered[0]), [*events, *ready]


def _never_ready(view: View, lists: Sequence[set[int]], events: Sequence[Event]) -> Named | None:
    """Return the ranks that are in no list of ready ranks, if the lists are equal and fewer ranks are missing than ready."""
    size = max(view.identity.world_size or 0, max(set[int]().union(*lists), default=-1) + 1)
    missing = [rank for rank in range(min(size, _MANY)) if not any(rank in ranks for ranks in lists)]
    same = all(ranks == lists[0] for ranks in lists)
    return (missing, events) if same and missing and len(missing) < len(lists[0]) else None
