"""Slow ranks, by the times of their steps and by what training programs say: straggler detectors and timers."""

from __future__ import annotations

from collections import Counter

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event

#: The minimum number of reports, and the share of them that must agree. The slowest rank must take this many times as
#: long as the fastest (the stages of a pipeline differ by design), and this many milliseconds longer.
_REPORTS, _AGREE, _TIMES, _TIMES_OF_TIMER, _LEAST_MS = 3, 0.75, 1.5, 2.0, 200.0
#: Maximum number of ranks that are read from one warning.
_MOST = 64
_RANK = lazily(r"(?i)\brank=(\d{1,6})|(?<![\w.-])(\d{1,6})(?![\w.-])")


@fact(
    "pace.reported_ranks",
    "ranks that the program's straggler detector names repeatedly",
    blames=("its steps repeatedly took longer than the others'", "它的每步耗时一直比其他 rank 长"),
)
def _reported(case: Case) -> Fact | None:
    slowest = _slowest(case)
    warned = case.having("measurement", detector="stragglers")
    below = _outliers(case)
    ranks = {rank for event in warned for rank in _named(event)} | {rank for rank, _ in (*slowest, *below)}
    events = [*warned, *(event for _, event in (*slowest, *below))]
    return Fact(sorted(ranks), events[:4]) if ranks else None


def _named(event: Event) -> list[int]:
    found = list(_RANK.finditer(event.fields.get("ranks", "")))
    stated = [int(rank[1]) for rank in found if rank[1]]
    return (stated or [int(rank[2]) for rank in found])[:_MOST]


def _slowest(case: Case) -> list[tuple[int, Event]]:
    """Return the rank that is the slowest by far in nearly all reports of Megatron's detector."""
    reports = case.having("measurement", "slowest")
    if len(reports) < _REPORTS:
        return []
    far = [
        (rank, event)
        for event in reports
        if (rank := whole(event.fields.get("slowest"))) is not None and _far(event, _TIMES)
    ]
    rank, times = Counter(rank for rank, _ in far).most_common(1)[0] if far else (-1, 0)
    return [row for row in far if row[0] == rank] if times >= _AGREE * len(reports) else []


def _outliers(case: Case) -> list[tuple[int, Event]]:
    """Return the ranks below the median in several measurements of Megatron's sniff test."""
    below = [
        (rank, event)
        for event in case.having("measurement", "deviation", "rank")
        if (rank := whole(event.fields.get("rank"))) is not None and event.fields["deviation"].startswith("-")
    ]
    times = Counter(rank for rank, _ in below)
    return [(rank, event) for rank, event in below if times[rank] > 1]


def _far(event: Event, times: float) -> bool:
    low, high = event.number("min"), event.number("max")
    return low is not None and high is not None and high >= times * low and high - low >= _LEAST_MS


@fact(
    "pace.slow_ranks",
    "ranks whose steps repeatedly took longer than their peers'",
    blames=("its steps repeatedly took longer than the others'", "它的每步耗时一直比其他 rank 长"),
)
def _slow(case: Case) -> Fact | None:
    found = case.of("steps.slow_rank")
    ranks = case.ranks(found)
    return Fact(ranks, found[:3]) if ranks else None
