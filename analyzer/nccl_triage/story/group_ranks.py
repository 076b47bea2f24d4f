"""Ranks within a process group, and the ranks of the job that they are.

Gloo's monitored barrier and the fingerprints of ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` number ranks within the group that
meets. A process that prints such a line states its own number in it. Together with its rank in the job, this shows how
the group is numbered.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from nccl_triage.observations.event import Event
from nccl_triage.story.view import View

#: What numbers ranks within the group: values of the field ``counts`` of its lines.
_WITNESSES = ("fingerprint", "barrier")


@dataclass(frozen=True)
class _Numbering:
    """The printed pairs of number in the group and rank of the job; None if the lines come from several groups."""

    pairs: dict[int, int] | None

    @cached_property
    def is_of_job(self) -> bool:
        return self.pairs is not None and all(own == rank for own, rank in self.pairs.items())

    @cached_property
    def line(self) -> tuple[int, int, int] | None:
        """A number, its rank, and the distance of the next rank, if the known ranks are evenly spaced (most groups are)."""
        if self.pairs is None or len(self.pairs) < 2:
            return None
        (first, start), (second, end) = sorted(self.pairs.items())[:2]
        step, rest = divmod(end - start, second - first)
        if rest or step < 1 or any(rank != start + step * (own - first) for own, rank in self.pairs.items()):
            return None
        return first, start, step

    def rank_of(self, number: int) -> int | None:
        """Return the rank of the job with a number in the group, None if it is unknown."""
        if self.pairs is None:
            return None
        if self.is_of_job or number in self.pairs:
            return self.pairs.get(number, number)
        if self.line is None:
            return None
        first, start, step = self.line
        rank = start + step * (number - first)
        return rank if rank >= 0 else None


def _numberings(view: View) -> dict[str, _Numbering]:
    return {witness: _numbering(view, witness) for witness in _WITNESSES}


def _numbering(view: View, witness: str) -> _Numbering:
    found: dict[int, int] = {}
    for event in view.telling(counts=witness):
        # Only the first rank of a group reports who did not arrive.
        number = 0.0 if event.kind == "collective.absent" else event.number("rank")
        rank = event.context.rank
        if number is not None and rank is not None and found.setdefault(int(number), rank) != rank:
            return _Numbering(None)
    return _Numbering(found)


def of_job(view: View, event: Event, number: int) -> int | None:
    """Return the rank of the job that a number in a line stands for, None if the numbering of its group is unknown."""
    witness = event.fields.get("counts")
    if witness not in _WITNESSES:
        return number
    return view.once(_numberings)[witness].rank_of(number)
