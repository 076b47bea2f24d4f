"""Literals that every match of a pattern contains one of, and whether a pattern depends on digits."""

from __future__ import annotations

import random
import re

import pytest

from nccl_triage.engine.regex_analysis import depends_on_digits, required_literals, with_any_digits
from nccl_triage.engine.schema import RuleSet


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


@pytest.mark.parametrize(
    ("pattern", "line", "hexadecimal"),
    [
        ("Xid 79", "Xid 13", False),
        (r"^code [1-9]\d*$", "exit code 07", False),
        ("x[^0]y", "x0y", False),
        (r"(?!0)\dz", "0z", False),
        ("0xdead[0-5]", "0x0a1f9", True),
        ("at 0x[a-f]{4}", "at 0x12F4", True),
        (r"(?:status|vendor) 0x(?!0)\d+ feed", "vendor 0xa 1e3d", True),
    ],
)
def test_any_digits_are_found_in_place_of_certain_ones(pattern: str, line: str, hexadecimal: bool) -> None:
    assert re.search(pattern, line) is None
    found = with_any_digits(pattern, hexadecimal)
    assert found is not None and found.search(line)


def test_a_pattern_that_is_relaxed_changes_no_other() -> None:
    assert with_any_digits(r"v(\d+)[0-4]", hexadecimal=True) is not None
    assert re.compile(r"(\d+)x").findall("5ex 7x") == ["7"]


@pytest.mark.parametrize("pattern", ["Xid 79", r"\+ (?:srun|python3?(?:\.\d+)?)\s"])
def test_other_letters_still_count(pattern: str) -> None:
    found = with_any_digits(pattern, hexadecimal=True)
    assert found is not None
    assert found.search("frame #0: c10::Error::Error() + 0x57 (0x7f92b6d860d9 in /usr/lib/python3.11/torch.so)") is None


def test_samples_are_found_whatever_their_hexadecimal_digits_are(rules: RuleSet) -> None:
    chance, tried = random.Random(3), 0
    for signature in rules.signatures.values():
        relaxed = with_any_digits(signature.pattern.source, hexadecimal=True)
        if signature.pattern.user or relaxed is None:
            continue
        for sample in signature.match_samples:
            if signature.pattern.search(sample) is None:
                continue  # of a message behind a prefix, or of several lines
            other = re.sub(
                r"(?<=0x)[0-9a-f]+", lambda n: "".join(chance.choice("0123456789abcdef") for _ in n[0]), sample
            )
            other = re.sub(r"(?<![0-9a-fx])[0-9]+", lambda n: "".join(chance.choice("0123456789") for _ in n[0]), other)
            tried += 1
            assert relaxed.search(other), (signature.id, other)
    assert tried > 1000
