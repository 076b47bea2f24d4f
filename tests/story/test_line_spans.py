"""Spans that overlap cover the lines of all; each line belongs to the first block that was given it."""

from __future__ import annotations

import random

from nccl_triage.story.line_spans import LineOwners, LineSpans


def test_spans_hold_what_lists_of_lines_would() -> None:
    chance = random.Random(7)
    spans = [(chance.choice("ab"), first, first + chance.randrange(9)) for first in chance.choices(range(60), k=12)]
    held = LineSpans(spans)
    for source in "abc":
        for line in range(-2, 80):
            assert held.hold(source, line) == any(s == source and a <= line <= b for s, a, b in spans)


def test_the_first_block_has_a_line() -> None:
    chance = random.Random(8)
    lines = [(chance.choice("ab"), line) for line in chance.choices(range(60), k=40)]
    spans = [(chance.choice("ab"), first, first + chance.randrange(20)) for first in chance.choices(range(60), k=12)]
    owners = LineOwners[int](lines)
    expected: dict[tuple[str, int], int] = {}
    for number, (source, first, last) in enumerate(spans):
        owners.cover(source, first, last, number)
        for line in lines:
            if line[0] == source and first <= line[1] <= last:
                expected.setdefault(line, number)
    assert owners.found == expected
