"""Finds chronic stragglers, for which the others wait repeatedly, by the times in the dumps.

Two things are looked at. Where NCCL's recorder measured how long each call ran on the GPU, that of a straggler is short
every time, while the others spin in it: no clock is compared. Otherwise the times at which ranks issued a call are,
and clocks of different hosts differ: what a rank is late by in *every* call may be its clock alone. So between hosts a
rank is late only by what it exceeds its own best calls, and must come in time and late by turns, as it does where calls
follow each other at once and then after its slow work; a clock that is set during the job changes sides once. Ranks of
one host share a clock and are compared as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from nccl_triage.numbers import median
from nccl_triage.observations.recorder_table import Arrival, GroupKey, RecorderTable, unpack

#: Ranks and calls of a group at least; the share of ranks that may be slow.
_RANKS, _CALLS, _FEW = 3, 12, 4
#: Seconds that a rank must be late by, share of the time between two calls, and how many times the next worst rank.
_LEAST, _SHARE, _BEYOND = 0.05, 0.1, 3.0
#: Share of the calls that come after slow work, of those in which the rank is the last one, and changes between the two.
_OFTEN, _LAST, _TURNS = 0.25, 0.8, 4
#: The shares of a rank's delay above which a call counts as late, and below which as on time.
_LATE, _IN_TIME = 0.5, 0.2
#: The most groups, and ranks of a group, that are examined.
_MAX_GROUPS, _MAX_RANKS = 256, 2048


class Slow(NamedTuple):
    """A straggler: the median seconds that the others wait for it, and how often they do."""

    rank: int
    group: GroupKey
    seconds: float
    times: int
    calls: int
    #: gpu (its calls ran short), host (the clock of one host), turns (late and in time by turns).
    how: str


def slow_ranks(table: RecorderTable, host_of: Mapping[int, str]) -> list[Slow]:
    """Return the chronic stragglers of all groups, each once. ``host_of``: the hosts of ranks, as far as known."""
    by_group: dict[GroupKey, list[int]] = {}
    for (key, rank), standing in table.standings.items():
        if standing.arrivals:
            by_group.setdefault(key, []).append(rank)
    found: dict[int, Slow] = {}
    for key in sorted(by_group, key=lambda one: (-len(by_group[one]), one))[:_MAX_GROUPS]:
        for slow in _of_group(table, key, sorted(by_group[key])[:_MAX_RANKS], host_of):
            known = found.get(slow.rank)
            if known is None or slow.times > known.times:
                found[slow.rank] = slow
    return sorted(found.values(), key=lambda slow: slow.rank)


def _of_group(table: RecorderTable, key: GroupKey, ranks: list[int], host_of: Mapping[int, str]) -> Iterator[Slow]:
    calls = {rank: {one.seq: one for one in unpack(table.standings[(key, rank)].arrivals)} for rank in ranks}
    shared = sorted(set.intersection(*(set(own) for own in calls.values())))
    if len(ranks) < _RANKS or len(shared) < _CALLS:
        return
    issued = {rank: [own[seq].created / 1e9 for seq in shared] for rank, own in calls.items()}
    span = median(times[-1] - times[0] for times in issued.values()) / (len(shared) - 1)
    least = max(_LEAST, _SHARE * span)
    measured = _short(calls, shared)
    if measured is not None:
        yield from _made(key, _late(measured, least), len(shared), "gpu")
        return
    hosts: dict[str, list[int]] = {}
    for rank in ranks:
        hosts.setdefault(host_of.get(rank, ""), []).append(rank)
    for host, own in hosts.items():
        if host and len(own) >= _RANKS:
            yield from _made(key, _late(_behind(issued, own), least), len(shared), "host")
    behind = {rank: _beyond_best(late) for rank, late in _behind(_one_clock(issued), ranks).items()}
    by_turns = {rank: late for rank, late in _late(behind, least).items() if _turns(behind[rank], late[0])}
    yield from _made(key, by_turns, len(shared), "turns")


def _short(calls: Mapping[int, Mapping[int, Arrival]], shared: list[int]) -> dict[int, list[float]] | None:
    """Return by how much each rank's calls ran shorter than the median, where all were measured."""
    if any(own[seq].ran < 0 for own in calls.values() for seq in shared):
        return None
    middles = {seq: median(own[seq].ran for own in calls.values()) for seq in shared}
    return {rank: [(middles[seq] - own[seq].ran) / 1e6 for seq in shared] for rank, own in calls.items()}


def _behind(issued: Mapping[int, list[float]], ranks: Iterable[int]) -> dict[int, list[float]]:
    """Return by how much each rank came after the median, call by call."""
    own = {rank: issued[rank] for rank in ranks}
    middles = [median(times) for times in zip(*own.values(), strict=True)]
    return {rank: [one - middle for one, middle in zip(times, middles, strict=True)] for rank, times in own.items()}


def _one_clock(issued: Mapping[int, list[float]]) -> dict[int, list[float]]:
    """Return the times without the usual offsets of the ranks' clocks."""
    base = next(iter(issued.values()))
    found = {}
    for rank, times in issued.items():
        apart = median(one - other for one, other in zip(times, base, strict=True))
        found[rank] = [one - apart for one in times]
    return found


def _beyond_best(late: list[float]) -> list[float]:
    best = _quantile(late, 1, 10)
    return [one - best for one in late]


def _typical(late: list[float]) -> float:
    """Return the delay of a rank in the calls after slow work."""
    return _quantile(late, 7, 8)


def _quantile(late: list[float], number: int, parts: int) -> float:
    from statistics import quantiles  # slow to import, and a verdict without a flight recorder needs none

    return quantiles(late, n=parts)[number - 1]


def _late(behind: Mapping[int, list[float]], least: float) -> dict[int, tuple[float, int]]:
    """Return the ranks that are repeatedly late, with their delay and number of calls."""
    typical = {rank: _typical(late) for rank, late in behind.items()}
    ordered = sorted(typical.values(), reverse=True)
    latest = [max(calls) for calls in zip(*behind.values(), strict=True)]
    # So many others may be slow, too; beyond them no rank may be nearly as late.
    others = max(0, len(behind) // _FEW - 1)
    found = {}
    for rank, late in behind.items():
        usual = ordered[others + 1] if typical[rank] >= ordered[others] else ordered[others]
        times = [at for at, one in enumerate(late) if one > typical[rank] * _LATE]
        if typical[rank] < max(least, _BEYOND * usual) or len(times) < _OFTEN * len(late):
            continue
        last = sum(late[at] >= latest[at] for at in times)
        if last >= _LAST * len(times) or typical[rank] < ordered[0]:
            found[rank] = (median(late[at] for at in times), len(times))
    return found if len(found) <= max(1, len(behind) // _FEW) else {}


def _turns(late: list[float], typical: float) -> bool:
    """Tell whether a rank alternates between late and on time."""
    sides = [one > _LATE * typical for one in late if one > _LATE * typical or one < _IN_TIME * typical]
    return sum(one != two for one, two in pairwise(sides)) >= _TURNS


def _made(key: GroupKey, late: Mapping[int, tuple[float, int]], calls: int, how: str) -> Iterator[Slow]:
    for rank, (seconds, times) in late.items():
        yield Slow(rank, key, seconds, times, calls, how)
