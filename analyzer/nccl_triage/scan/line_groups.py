"""Groups of lines that differ in no number that matters: their lines are counted, and the last few of them are held."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from nccl_triage.engine import match
from nccl_triage.observations.store import Bucket
from nccl_triage.parsers import templates, unknown_errors
from nccl_triage.scan.digit_folding import Pick
from nccl_triage.scan.event_collector import Addition
from nccl_triage.scan.learned_shapes import LearnedNumbers

#: A counted line (its number, its bytes), which is read at the end if it is among the last of its group.
Waiting = tuple[int, bytes]


@dataclass(slots=True)
class LineGroup:
    """The lines of a shape that agree in the numbers that matter."""

    parts: tuple[Addition, ...]
    #: Signatures that its lines match.
    signatures: tuple[str, ...]
    #: Formats of curves that may read its lines.
    formats: tuple[str, ...] | None
    #: The last lines, and how many of them are held at most. Not a deque: an empty one takes the room of sixty lines.
    last: list[Waiting]
    waits: int
    lines: int = 0

    def add(self, number: int, raw: bytes) -> None:
        """Count a line, and hold it in place of the oldest."""
        self.lines += 1
        last = self.last
        if self.waits == 1 and last:
            last[0] = (number, raw)  # as below, in half the time
            return
        last.append((number, raw))
        if len(last) > self.waits:
            del last[0]


@dataclass(slots=True)
class Family:
    """Lines of one source that differ in numbers only: which of these matter, and the groups by their values."""

    numbers: LearnedNumbers
    groups: dict[Hashable, LineGroup] = field(default_factory=dict)


def buckets_of(group: LineGroup) -> list[Bucket]:
    """Return the buckets that the events of a group go to."""
    return [counter for counter, _ in group.parts if isinstance(counter, Bucket)]


def first_shown(numbers: Sequence[int], last: int) -> int:
    """Return the first of the last few lines that a bucket shows."""
    return sorted(numbers)[-last:][0] if numbers else 0


def key(family: Family, pick: Pick | None, raw: bytes) -> Hashable:
    """Return a line's key in its family: the numbers that matter, and what digit-sensitive patterns find."""
    values = None if pick is None else pick(raw)
    return (values, _found(family.numbers, raw)) if family.numbers.sensitive else values


def _found(numbers: LearnedNumbers, raw: bytes) -> Hashable:
    """Return which of the digit-sensitive patterns match, and what keeps their events apart."""
    text = raw.decode("utf-8", "replace")
    tried = ((one, match.search(one, text)) for one in numbers.sensitive)
    found = tuple([(one.id, *map(fields.get, one.keep_by)) for one, fields in tried if fields is not None])
    # Of lines that no signature knows, one is kept for each template.
    return found or (numbers.bare and unknown_errors.sounds(text) and templates.key(text))
