"""Sends and receives that never met.

Numbers of sends and receives do not match between ranks (each rank counts all of its peers together), so the ends of
a pair are matched in order: where nothing was overwritten by how many there are, otherwise by what is still open.
"""

from __future__ import annotations

from collections.abc import Mapping

from nccl_triage.observations.recorder_table import End, GroupKey, RecorderLine, RecorderTable
from nccl_triage.recorder.finding import Finding
from nccl_triage.recorder.lines import group as group_name
from nccl_triage.recorder.vote import elements


def unmet(table: RecorderTable, members: Mapping[GroupKey, tuple[int, ...]]) -> list[Finding]:
    """Return what is wrong between pairs of ranks."""
    found: list[Finding] = []
    for key, source, target in sorted({place[:3] for place in table.pairs}):
        send = table.pairs.get((key, source, target, "send"))
        receive = table.pairs.get((key, source, target, "recv"))
        waiting = next((end for end in (send, receive) if end is not None and end.open), None)
        if waiting is None:
            continue
        name = group_name(key.name, key.desc)
        if send is not None and receive is not None and send.open and receive.open:
            wrong = _differ(send, receive)
            if wrong:
                ends = (send.open[0][1], receive.open[0][1])
                found.append(Finding(wrong, name, -1, f"send {source}->{target}", (), (send.rank, receive.rank), ends))
            continue
        other = receive if waiting is send else send
        peer = _global(members.get(key), target if waiting is send else source)
        if peer is None or (peer,) not in table.dumps or _may_have(waiting, other):
            continue
        op, side = waiting.open[0][0].op, waiting.open[0][1]
        lines = [side, *_last(table, key, peer)]
        found.append(Finding("unmet", name, -1, f"{op} {source}->{target}", (peer,), (waiting.rank,), tuple(lines)))
    return found


def _global(members: tuple[int, ...] | None, rank: int) -> int | None:
    """Return the global rank of a rank of a group; without its members they are taken for the same."""
    if members is None:
        return rank
    return members[rank] if rank < len(members) else None


def _may_have(waiting: End, other: End | None) -> bool:
    """Tell whether the counterpart may have been issued after all."""
    if other is not None:
        return not (waiting.cut or other.cut) and other.total >= waiting.total
    return False


def _differ(send: End, receive: End) -> str:
    """Return in what the first open ends of both sides differ."""
    given, taken = send.open[0][0], receive.open[0][0]
    if not (send.cut or receive.cut) and send.done != receive.done:
        return ""
    if elements(given.inputs or given.outputs) != elements(taken.outputs or taken.inputs):
        return "size"
    one, two = given.input_types or given.output_types, taken.output_types or taken.input_types
    return "dtype" if one and two and one != two else ""


def _last(table: RecorderTable, key: GroupKey, rank: int) -> list[RecorderLine]:
    standing = table.standings.get((key, rank))
    line = (standing.open or standing.last) if standing is not None else None
    return [line] if line is not None else []
