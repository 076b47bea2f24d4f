"""Numbers of ranks within a process group, and which ranks of the job they are.

Gloo's monitored barrier and the fingerprints of DETAIL count ranks within the group that meets. Whoever prints such a
line names its own number in it; beside the rank of the job that printed the line this tells how the group is numbered.
"""

from __future__ import annotations

from nccl_triage.events import Event
from nccl_triage.story.view import View

#: Witnesses that count ranks within the group, by what prints them: the field ``counts`` of their lines.
_WITNESSES = ("fingerprint", "barrier")


def _pairs(view: View, witness: str) -> dict[int, int] | None:
    """Return number in the group -> rank of the job, as far as printed; None where several groups speak."""
    found: dict[int, int] = {}
    for event in view.telling(counts=witness):
        # Who did not arrive is told by the first rank of the group alone.
        number = 0.0 if event.kind == "collective.absent" else event.number("rank")
        rank = event.context.rank
        if number is not None and rank is not None and found.setdefault(int(number), rank) != rank:
            return None
    return found


def of_job(view: View, event: Event, number: int) -> int | None:
    """Return which rank of the job a number in such a line is; None where it is of a group that nothing describes."""
    witness = event.fields.get("counts")
    if witness not in _WITNESSES:
        return number
    pairs = _pairs(view, witness)
    if pairs is None:
        return None
    if all(own == rank for own, rank in pairs.items()):
        return number
    return pairs[number] if number in pairs else _extended(pairs, number)


def _extended(pairs: dict[int, int], number: int) -> int | None:
    """Return the rank of a number that nobody printed, where the known ones lie evenly; a group seldom does otherwise."""
    if len(pairs) < 2:
        return None
    (first, start), (second, end) = sorted(pairs.items())[:2]
    step, rest = divmod(end - start, second - first)
    if rest or step < 1 or any(rank != start + step * (own - first) for own, rank in pairs.items()):
        return None
    rank = start + step * (number - first)
    return rank if rank >= 0 else None
