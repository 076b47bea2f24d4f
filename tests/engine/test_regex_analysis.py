"""Literals that every match of a pattern contains one of, and whether a pattern depends on digits."""

from __future__ import annotations

import pytest

from nccl_triage.engine.regex_analysis import depends_on_digits, required_literals


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"Duplicate GPU detected : rank (\d+)", {"Duplicate GPU detected : rank "}),
        (r"(?:cat|dogs) (?:food)", {"cat food", "dogs food"}),
        (r"\d+ foo(?:bar)?", {" foo", " foobar"}),
        (r"NCCL\s+WARN .*Broken pipe", {"Broken pipe"}),
        (r"(?:abc)+x*", {"abc"}),
        (r"[Tt]imed out", {"Timed out", "timed out"}),
    ],
)
def test_literals(pattern: str, expected: set[str]) -> None:
    found = required_literals(pattern)
    assert found is not None
    assert found.texts == expected
    assert not found.caseless


def test_case_insensitive_patterns_give_lower_case_literals() -> None:
    found = required_literals(r"(?i)Loss is NaN")
    assert found is not None
    assert found.caseless
    assert found.texts == {"loss is nan"}


@pytest.mark.parametrize("pattern", [r"\d+", r"(?:ab)?\w*", r"a|b", r".*"])
def test_patterns_without_literals(pattern: str) -> None:
    assert required_literals(pattern) is None


def test_optional_parts_are_not_required() -> None:
    found = required_literals(r"(?:optional text )?needed")
    assert found is not None
    assert all("needed" in text for text in found.texts)


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
    assert not depends_on_digits(pattern)


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
    assert depends_on_digits(pattern)
