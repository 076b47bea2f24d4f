"""How ranks reach each other: P2P, shared memory, network, with or without GPUDirect."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.baseline.model import Difference
from nccl_triage.diagnosis.case import Case
from nccl_triage.observations.event import Context, Event
from nccl_triage.scan.measurements import LINK

#: Kinds of change that are told.
MAX_KINDS = 4
_Pair = tuple[int, int]


def compare(good: Case, bad: Case) -> Iterator[Difference]:
    """Yield the changes of transport between the same two ranks, the most frequent first."""
    theirs, ours = _transports(good), _transports(bad)
    kinds: dict[tuple[str, str], list[_Pair]] = {}
    for pair in sorted(theirs.keys() & ours.keys()):
        before, after = theirs[pair][0], ours[pair][0]
        if before != after:
            kinds.setdefault((before, after), []).append(pair)
    for (before, after), pairs in sorted(kinds.items(), key=lambda kind: (-len(kind[1]), kind[0]))[:MAX_KINDS]:
        first = pairs[0]
        source, line = ours[first][1]
        at = Event(LINK, source, line, "", Context())
        further = {"pairs": str(len(pairs)), "first_pair": f"{first[0]} -> {first[1]}"}
        yield Difference("transport", further["first_pair"], before, after, at, theirs[first][1], further)


def _transports(case: Case) -> dict[_Pair, tuple[str, tuple[str, int]]]:
    """Return each pair's transports in words, and where they are printed first."""
    found: dict[_Pair, dict[str, tuple[str, int]]] = {}
    for link, seen in sorted(case.observations.links.kept().items(), key=lambda kept: kept[1].place):
        name = f"{link.via}{' GDRDMA' if link.direct else ''}"
        found.setdefault((link.source_rank, link.target_rank), {}).setdefault(name, seen.place)
    return {pair: (", ".join(sorted(names)), min(names.values())) for pair, names in found.items()}
