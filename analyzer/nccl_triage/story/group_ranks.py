"""Numbers of ranks within a process group, and which ranks of the job they are.

Gloo's monitored barrier and the fingerprints of DETAIL count ranks within the group that meets. Whoever prints such a
line names its own number in it; beside the rank of the job that printed the line this tells how the group is numbered.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from nccl_triage.observations.event import Event
from nccl_triage.story.view import View

#: Witnesses that count ranks within the group, by what prints them: the field ``counts`` of their lines.
_WITNESSES = ("fingerprint", "barrier")


@dataclass(frozen=True)
class _Numbering:
    """Number in the group -> rank of the job, as far as printed; None where several groups speak."""

    pairs: dict[int, int] | None

    @cached_property
    def is_of_job(self) -> bool:
        return self.pairs is not None and all(own == rank for own, rank in self.pairs.items())

    @cached_property
    def line(self) -> tuple[int, int, int] | None:
        """A number, its rank and the ranks from one number to the next, where the known ones lie evenly.

        A group seldom does otherwise.
        """
        if self.pairs is None or len(self.pairs) < 2:
            return None
        (first, start), (second, end) = sorted(self.pairs.items())[:2]
        step, rest = divmod(end - start, second - first)
        if rest or step < 1 or any(rank != start + step * (own - first) for own, rank in self.pairs.items()):
            return None
        return first, start, step

    def rank_of(self, number: int) -> int | None:
        """Return the rank of the job that a number stands for."""
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
        # Who did not arrive is told by the first rank of the group alone.
        number = 0.0 if event.kind == "collective.absent" else event.number("rank")
        rank = event.context.rank
        if number is not None and rank is not None and found.setdefault(int(number), rank) != rank:
            return _Numbering(None)
    return _Numbering(found)


def of_job(view: View, event: Event, number: int) -> int | None:
    """Return which rank of the job a number in such a line is; None where it is of a group that nothing describes."""
    witness = event.fields.get("counts")
    if witness not in _WITNESSES:
        return number
    return view.once(_numberings)[witness].rank_of(number)
