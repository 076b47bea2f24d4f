"""Which patterns mind what digits they meet."""

from __future__ import annotations

import pytest

from nccl_triage.engine.digits import minds_digits


@pytest.mark.parametrize(
    "pattern",
    [
        r"rank \d+ of (?P<n>[0-9]{1,3})",
        r"(?i)watchdog \w+(?: after \S+)?$",
        r"[^:]+: .*",
        r"(?<![\w.])x(?=\d)",
        "a|b|[a-f0-9]+",
        r"\bfoo\b",
    ],
)
def test_any_digit_will_do(pattern: str) -> None:
    assert not minds_digits(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "Xid 79",
        r"exit code [1-9]\d*",
        "(?:a|b(?:c|d7))",
        r"(?P<a>\d)x(?P=a)",
        r"(?!0)\d",
        r"[^0]\d",
        "x{2}[0-5]+?",
        r"(",
    ],
)
def test_digits_count(pattern: str) -> None:
    assert minds_digits(pattern)
