"""Names of hosts out of torn lines: two processes wrote at once, and the prefix of one line ran into the other's.

``x3006c0s25b0x3006c0s25b0n0:100:200`` and ``0mew0:77:77`` name no hosts. A name is refused only where the lines show a
better one, so a host that printed a single line keeps its name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from nccl_triage.observations.event import Event

#: A name that lacks a piece, or has one too many, is torn if it stands on so few lines, and its host on more.
RARE = 3
#: More or longer names than these are no hosts of one job, and too many to compare.
MOST, LONGEST = 4096, 80
#: Characters of a name that are enough to know how a host's name begins.
PIECE = 4


def mend(events: Sequence[Event]) -> list[Event]:
    """Return the events in order, those with a torn name of a host under its right name, or under none."""
    lines = Counter(event.context.host for event in events if event.context.host)
    if not 2 <= len(lines) <= MOST:
        return list(events)
    pids: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if event.context.host and event.context.pid is not None:
            pids[event.context.host].add(event.context.pid)
    ends = _Ends(lines)
    right = {name: glued or None for name in lines if (glued := ends.glued_to(name)) is not None}
    for name, count in lines.items():
        if name not in right and count <= RARE:
            better = [h for h in ends.cut_of(name) if h not in right and lines[h] > count and pids[h] & pids[name]]
            if better:
                right[name] = max(better, key=lambda host: lines[host])
    return [
        replace(event, context=replace(event.context, host=right[event.context.host]))
        if event.context.host in right
        else event
        for event in events
    ]


class _Ends:
    """Names by their ends: found by slices of a name, not by comparing every two of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name for name in names if len(name) <= LONGEST}
        self._begins = {name[:length] for name in self._names for length in range(PIECE, len(name) + 1)}
        self._tails: dict[str, list[str]] = defaultdict(list)
        for name in self._names:
            for start in range(1, len(name)):
                self._tails[name[start:]].append(name)

    def glued_to(self, name: str) -> str | None:
        """Return the name at the end of one that begins like another host's, "" where a host's stands first, or None."""
        for cut in range(PIECE, min(len(name), 2 * LONGEST) - PIECE + 1):
            first, last = name[:cut], name[cut:]
            if first[:PIECE] != last[:PIECE]:  # hosts of one job are named alike
                continue
            if last in self._names and first in self._begins:
                return last
            if first in self._names and last in self._begins:
                return ""
        return None

    def cut_of(self, name: str) -> list[str]:
        """Return the names of which this one is the end, and those that are the end of this one."""
        inside = [name[start:] for start in range(1, min(len(name), 2 * LONGEST)) if name[start:] in self._names]
        return [*inside, *self._tails.get(name, ())]
