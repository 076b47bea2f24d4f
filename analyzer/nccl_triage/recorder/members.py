"""Who belongs to a group of which no dump tells it, as Gloo's (PyTorch 2.13) do not: derived from how groups are numbered.

Who recorded a call in a group belongs to it. Beyond that two numbers help: PyTorch names the groups of a job 0, 1, 2, ..
in the order in which all ranks make them (``distributed_c10d._process_group_name``), and each process counts those that
it belongs to itself (``pg_id``; ProcessGroupGloo ``local_id_``). Between two groups that a rank is known to be in, it is
in all others where both numbers went on by the same amount, and in none where its own went on by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from nccl_triage.observations.recorder_table import GroupKey, RecorderTable

#: Digits of the highest name of a group that was counted.
_MAX_DIGITS = 6
#: Groups whose further members are looked for, and ranks of a job that may be among them.
_MAX_GROUPS, _MAX_WORLD = 64, 8192


@dataclass(slots=True)
class Members:
    """What the dumps show of groups without stated members: who is in each for certain, and who may be, too."""

    known: dict[GroupKey, set[int]] = field(default_factory=dict)
    possible: dict[GroupKey, set[int]] = field(default_factory=dict)


def derive(table: RecorderTable, world: frozenset[int]) -> Members:
    """Return the members of the groups of which no dump states them. ``world``: all ranks that are known."""
    found = Members()
    unstated = {key for key, _ in table.standings if not table.groups.get(key)}
    if not unstated:
        return found
    numbers: dict[int, set[GroupKey]] = {}
    of_rank: dict[int, dict[int, int]] = {}
    for (key, rank), standing in table.standings.items():
        number = _number(key)
        if number is not None and standing.number >= 0:
            of_rank.setdefault(rank, {})[number] = standing.number
        if key in unstated:
            found.known.setdefault(key, set()).add(rank)
            numbers.setdefault(-1 if number is None else number, set()).add(key)
    keys = {number: next(iter(named)) for number, named in numbers.items() if number >= 0 and len(named) == 1}
    absent: dict[GroupKey, set[int]] = {}
    for rank, own in of_rank.items():
        for number, belongs in _between(own, sorted(keys)):
            (found.known if belongs else absent).setdefault(keys[number], set()).add(rank)
    for key in sorted(found.known)[: _MAX_GROUPS if len(world) <= _MAX_WORLD else 0]:
        found.possible[key] = set(world) - found.known[key] - absent.get(key, set())
    return found


def _number(key: GroupKey) -> int | None:
    counted = key.name.isascii() and key.name.isdigit() and len(key.name) <= _MAX_DIGITS
    return int(key.name) if counted else None


def _between(own: Mapping[int, int], wanted: list[int]) -> Iterator[tuple[int, bool]]:
    """Yield the groups that a rank, which shows nothing of them, is certainly in or certainly not in."""
    for (low, first), (high, last) in pairwise([(-1, -1), *sorted(own.items())]):
        belongs = high - low == last - first
        if belongs or last - first == 1:
            for number in wanted[bisect_right(wanted, low) : bisect_left(wanted, high)]:
                yield number, belongs
