"""NCCL's RAS: which ranks launched fewer operations than the most, gave no data, or are considered dead.

The report names single ranks on one line and groups of ranks by a heading and a line each. Its ranks are those of a
communicator; process, host and GPU stand beside them, by which they are joined to the job's ranks. That all launched
equally many says nothing: a collective in which all are stuck looks so, too.
"""

from __future__ import annotations

from nccl_triage.observations.event import Event
from nccl_triage.story.view import View


def _global(view: View, event: Event) -> int | None:
    """Return the job's rank of a rank that the report names."""
    pid, number = event.number("pid"), event.number("rank")
    host = event.fields.get("host")
    if pid is not None:
        named = view.identity.host_of_address(host) if host else None
        found = view.identity.rank_of_pid(int(pid), named or host)
        if found is not None:
            return found
    return int(number) if number is not None else None


def _lines(view: View) -> list[Event]:
    """Return the lines of the report; the field ``ras`` says what a line of it is."""
    return sorted(
        (e for e in view.of("collective.counters", "collective.absent") if "ras" in e.fields),
        key=lambda event: (event.source, event.line),
    )


def lagging(view: View) -> dict[int, tuple[int, Event]]:
    """Return the ranks that launched fewer operations than the most: how many, and the line that says so."""
    found: dict[int, tuple[int, Event]] = {}
    groups: list[tuple[float, list[Event]]] = []
    members: list[Event] | None = None
    for event in [*_lines(view), None]:
        part = event.fields["ras"] if event is not None else "end"
        if event is None or part == "operation":
            _settle(view, groups, found)
            groups, members = [], None
        elif part == "heading":
            members = []
            groups.append((event.number("seq") or 0.0, members))
        elif part == "single":
            groups.append((event.number("seq") or 0.0, [event]))
            members = None
        elif part == "member" and members is not None:
            members.append(event)
        else:
            members = None
    return found


def _settle(view: View, groups: list[tuple[float, list[Event]]], found: dict[int, tuple[int, Event]]) -> None:
    """Take over who is behind in one kind of operation: the named ranks of the groups below the highest number."""
    top = max((number for number, _ in groups), default=0.0)
    for number, members in groups:
        if number < top:
            for event in members:
                rank = _global(view, event)
                if rank is not None:
                    found.setdefault(rank, (int(number), event))


def silent(view: View) -> dict[int, Event]:
    """Return the ranks of a communicator that gave no data, and the lines that say so: dead, stuck or stopped."""
    found: dict[int, Event] = {}
    inside = False
    for event in _lines(view):
        if event.fields["ras"] == "member" and inside:
            rank = _global(view, event)
            if rank is not None:
                found.setdefault(rank, event)
        else:
            inside = event.fields["ras"] == "silent"
    return found
