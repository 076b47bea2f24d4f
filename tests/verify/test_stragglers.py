"""Ranks that come late, compute slowly or keep the others waiting."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.verify.collective_run import RankTrace
from nccl_triage.verify.outliers import above, below
from nccl_triage.verify.stragglers import LATE
from tests.verify.told_runs import rank, seen, told


def test_outliers_are_found_by_the_median_of_the_others() -> None:
    assert above({"a": 1.0, "b": 1.1, "c": 3.0}, 2.0) == ["c"]
    assert above({"a": 1.0, "b": 3.0}, 2.0) == ["b"], "of two the other one is the measure"
    assert above({"a": 1.0, "b": 1.0, "c": 3.0, "d": 4.0}, 2.0) == ["d", "c"]
    assert above({"a": 0.01, "b": 0.03}, 2.0, 0.1) == [], "a ratio of next to nothing"
    assert above({"a": 1.0}, 2.0) == above({}, 2.0) == []
    assert below({"a": 1.0, "b": 9.0, "c": 10.0}, 2.0) == ["a"]
    assert below({"a": 1.0, "b": 1.5}, 2.0) == below({"a": 0.1, "b": 0.2}, 2.0, 1.0) == []


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


def test_several_slow_ranks_are_waited_for() -> None:
    ranks = [rank(k) for k in range(5)]
    for trace, median in zip(ranks, (0.5, 0.01, 0.51, 0.02, 0.5), strict=True):
        trace.details["done"] = slow(median)
    assert told(seen(*ranks)) == ("straggler", "slow", (1, 3))


def test_a_rank_that_is_late_where_everybody_takes_long() -> None:
    ranks = [rank(k) for k in range(3)]
    for trace, delay in zip(ranks, (2.0, 2.1, 3.2), strict=True):
        trace.times["entered"] += delay
    assert seen(*ranks) is None


def working(*seconds: tuple[float, float], **device: Any) -> list[RankTrace]:
    ranks = [rank(k) for k in range(len(seconds))]
    for number, (trace, (matmul, copy)) in enumerate(zip(ranks, seconds, strict=True)):
        named = {name: value[number] if isinstance(value, list) else value for name, value in device.items()}
        trace.details["device"] = {"device": "cpu", **named}
        trace.details["done"] = {"wrong": 0, "median": 0.01, "compute": {"matmul_s": matmul, "copy_s": copy}}
    return ranks


USUAL = (0.03, 0.01)


def test_a_rank_whose_own_work_takes_long() -> None:
    found = seen(*working(USUAL, (0.12, 0.04), USUAL))
    assert told(found) == ("straggler", "slow", (1,))
    assert found is not None and "160 ms" in found.says["en"] and "the others 40 ms" in found.says["en"]


@pytest.mark.parametrize("odd", [(0.05, 0.02), (0.03, 0.03), (0.01, 0.01)])
def test_cores_are_noisy(odd: tuple[float, float]) -> None:
    assert seen(*working(USUAL, odd, USUAL)) is None


GPUS: dict[str, Any] = {"device": "cuda", "name": "H100", "bus": ["0000:01:00", "0000:02:00", "0000:03:00"]}


def test_a_gpu_that_is_throttled_or_whose_memory_is_slow() -> None:
    usual = (0.004, 0.002)
    found = seen(*working(usual, usual, (0.008, 0.002), **GPUS))
    assert told(found)[2] == (2,) and "a matrix multiplication" in str(found and found.says["en"])
    found = seen(*working((0.004, 0.004), usual, usual, **GPUS))
    assert told(found)[2] == (0,) and "a copy" in str(found and found.says["en"])
    assert seen(*working(usual, usual, (0.005, 0.002), **GPUS)) is None


def test_gpus_of_different_models_and_shared_ones_are_not_compared() -> None:
    usual, odd = (0.004, 0.002), (0.008, 0.002)
    assert seen(*working(usual, usual, odd, **{**GPUS, "name": ["H100", "H100", "L4"]})) is None
    assert seen(*working(usual, odd, odd, **{**GPUS, "bus": ["0000:01:00", "0000:02:00", "0000:02:00"]})) is None


@pytest.mark.parametrize(
    "told", [None, [], {}, {"matmul_s": 1.0}, {"matmul_s": "x", "copy_s": 1.0}, {"matmul_s": 0, "copy_s": 1}]
)
def test_work_that_is_none_is_not_compared(told: Any) -> None:
    ranks = working(USUAL, USUAL, USUAL)
    ranks[2].details["done"]["compute"] = told
    assert seen(*ranks) is None
