"""Whole numbers, and lists of them."""

from __future__ import annotations

import pytest

from nccl_triage.numbers import listed, whole


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7", [7]),
        ("0-3,7", [0, 1, 2, 3, 7]),
        ("[3, 1]", [3, 1]),
        ("1 2", [1, 2]),
        ("3-1", []),
        ("one,2", [2]),
        ("", []),
        (None, []),
        ("٣", [3]),
    ],
)
def test_a_list_of_numbers(text: str | None, found: list[int]) -> None:
    assert listed(text) == found


def test_a_list_without_end_is_bounded() -> None:
    assert len(listed("0-999999999999,7", most=100)) == 100


def test_absurdly_long_numbers_are_none() -> None:
    assert whole("9" * 19) is None
    assert listed("9" * 19 + ",1") == [1]
