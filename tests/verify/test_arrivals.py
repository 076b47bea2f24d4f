"""Who did not come to the others, came late, or keeps them waiting."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.verify.arrivals import LATE
from tests.verify.told_runs import KILLED, NAMES, WAITS, rank, seen, told


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"state": "T", **KILLED}, "stopped"),
        ({"state": "S", **KILLED}, "absent"),
        ({"state": "D", **KILLED}, "absent"),
        ({"exit_code": 0, "exited_at": 1.0}, "left"),
    ],
)
def test_a_rank_that_never_entered(changes: dict[str, Any], kind: str) -> None:
    found = seen(rank(0, "entered", **WAITS), rank(1, "group", **changes), rank(2, "entered", **WAITS))
    assert told(found) == ("rank-divergence", kind, (1,))


def test_nobody_entered_is_no_divergence() -> None:
    found = seen(rank(0, "store", **KILLED), rank(1, "store", **KILLED))
    assert told(found) == ("", "group-failed", ())


def test_a_rank_that_never_joined_the_store() -> None:
    found = seen(rank(0, "device", **WAITS), rank(1, "device", **KILLED), rank(2, "store", **WAITS))
    assert told(found) == ("rendezvous-failed", "never-joined", (1,))


def test_all_ranks_waiting_for_the_store_blame_nobody_of_never_joining() -> None:
    found = seen(rank(0, "device", **KILLED), rank(1, "device", **KILLED))
    assert found is None or found.kind != "never-joined"


def test_a_store_that_cannot_be_reached_names_both_ends() -> None:
    found = seen(rank(0, "device", **WAITS), rank(1, "device", place=1, **WAITS))
    assert told(found) == ("rendezvous-failed", "store-unreachable", (1,))
    assert found is not None and found.hosts == NAMES


def test_a_late_rank() -> None:
    behind = rank(1)
    behind.times["entered"] += LATE + 0.1
    assert told(seen(rank(0), behind, rank(2))) == ("straggler", "late", (1,))
    behind.times["entered"] -= 0.2
    assert seen(rank(0), behind, rank(2)) is None


def test_of_two_ranks_the_later_one_is_late() -> None:
    for culprit in (0, 1):
        ranks = [rank(0), rank(1)]
        ranks[culprit].times["entered"] += 2 * LATE
        assert told(seen(*ranks)) == ("straggler", "late", (culprit,))


def slow(median: float) -> dict[str, Any]:
    return {"wrong": 0, "median": median}


def test_a_slow_rank_is_the_one_that_waits_for_nobody() -> None:
    ranks = [rank(k) for k in range(3)]
    for trace, median in zip(ranks, (0.5, 0.01, 0.51), strict=True):
        trace.details["done"] = slow(median)
    assert told(seen(*ranks)) == ("straggler", "slow", (1,))
    assert seen(*ranks, op="BROADCAST") is None, "nobody waits for the receivers of a broadcast"
    for trace in ranks:
        trace.details["done"] = slow(0.5)
    assert seen(*ranks) is None
