"""Required literals: every match of a pattern contains one of them."""

from __future__ import annotations

import pytest

from nccl_triage.engine.literals import required_literals


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
