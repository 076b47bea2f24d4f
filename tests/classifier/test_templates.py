"""Lines of one statement of a program fold into one template; what names the kind of error stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_triage.parsers.templates import template, words
from nccl_triage.parsers.unknown_errors import MAX_TEMPLATES, UnknownErrors


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Connect to 10.0.0.1<4471> failed", "Connect to 192.168.7.22<60001> failed"),
        ("Tried to allocate 2.50 GiB. GPU 3 has", "Tried to allocate 11.25 GiB. GPU 0 has"),
        ("cannot open /data/a/train.bin", "cannot open /mnt/other/place/train.bin"),
        ("comm 0x7f12aa00 abort", "comm 0x55d0beef abort"),
        ("2025-12-06 18:44:12,001 failed", "2026-01-30 08:00:59,999 failed"),
        ("fe80::5054:ff:fe12:3456 unreachable", "fe80::1 unreachable"),
    ],
)
def test_what_varies_from_run_to_run_is_folded(one: str, two: str) -> None:
    assert template(one) == template(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("completion with status=12 opcode", "completion with status=4 opcode"),
        ("CUDA error 802 initialising", "CUDA error 803 initialising"),
        ("failed (exitcode: -9)", "failed (exitcode: -11)"),
    ],
)
def test_numbers_that_name_the_error_stay(one: str, two: str) -> None:
    assert template(one) != template(two)
    assert words(template(one)) != words(template(two))


@given(st.text(max_size=600))
def test_any_text_folds_and_folding_is_stable_in_its_words(text: str) -> None:
    assert all(word == word.lower() for word in words(template(text)))


def test_unknown_trouble_is_kept_once() -> None:
    lines = UnknownErrors()
    assert lines.fresh("FrobError: the frob on 10.0.0.1 is not supported") is not None
    assert lines.fresh("FrobError: the frob on 10.0.0.2 is not supported") is None
    assert lines.fresh("everything is fine") is None
    assert lines.fresh('  File "x.py", line 3, in error') is None


def test_a_storm_of_different_lines_costs_bounded_memory() -> None:
    lines = UnknownErrors()
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    kept = sum(
        lines.fresh(f"failed at {alphabet[i % 26]}{alphabet[i // 26 % 26]}{alphabet[i // 676]} step") is not None
        for i in range(3000)
    )
    assert kept == MAX_TEMPLATES
