"""Who stands apart from a majority."""

from __future__ import annotations

from nccl_triage.story.majority import minority, usual


def test_the_minority_differs_from_more_than_half() -> None:
    assert minority({"a": 1, "b": 1, "c": 2}) == ["c"]
    assert usual({"a": 1, "b": 1, "c": 2}) == 1


def test_where_all_agree_nobody_is_apart() -> None:
    assert minority({"a": 1, "b": 1}) == []
    assert minority({}) == []


def test_without_a_majority_everybody_is_apart() -> None:
    assert minority({"a": 1, "b": 2}) == ["a", "b"]
    assert minority({"a": 1, "b": 1, "c": 2, "d": 3}) == ["a", "b", "c", "d"]
    assert usual({"a": 1, "b": 1, "c": 2, "d": 3}) is None


def test_those_that_are_not_heard_may_side_with_the_minority() -> None:
    assert minority({"a": 1, "b": 1, "c": 2}, unheard=1) == ["a", "b", "c"]
    assert minority({"a": 1, "b": 1, "c": 1, "d": 2}, unheard=1) == ["d"]
