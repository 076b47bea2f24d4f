"""The first lines of a source that come again."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.ingest.blocks import LineBlock
from nccl_triage.scan.openings import Openings
from tests.scan_helpers import diagnose_text

OPENING = ["the sampler of tides, release 2.1", "reading the stations", "stations: 12", "grid of 400 cells",
           "seed is 17", "device is cuda:0"]  # fmt: skip


def found(*runs: list[str], batch: int = 1000) -> list[int]:
    lines = [line for run in runs for line in run]
    openings = Openings()
    for first in range(0, len(lines), batch):
        part = lines[first : first + batch]
        openings.read(range(first + 1, first + 1 + len(part)), part)
    return openings.found


def work(number: int) -> list[str]:
    return [f"tide {n} is computed" for n in range(number)]


@pytest.mark.parametrize("batch", [7, 13, 1000])
def test_each_further_start_is_found_in_batches_of_any_size(batch: int) -> None:
    again = [line.replace("17", "23").replace("12", "9") for line in OPENING]
    assert found(OPENING + work(20), again + work(30), OPENING + work(2), batch=max(batch, 8)) == [27, 63]


def test_a_start_with_a_warning_more_or_a_line_less_is_one() -> None:
    again = [OPENING[0], "warning: no cache", *OPENING[1:3], *OPENING[4:]]
    assert found(OPENING + work(20), again) == [27]


def test_a_repeated_block_behind_the_first_lines_is_none() -> None:
    block = [
        "evaluating the model",
        "reading the table",
        "computing the mean",
        "writing the mean",
        "evaluation is done",
    ]
    assert (
        found(["hello to the sampler", "one more line", "and another line", *block], work(5), block, work(5), block)
        == []
    )


def test_lines_without_an_opening_are_none() -> None:
    assert found(["12:00 1 2 3"] * 50) == []
    assert found([]) == []


def test_a_failed_start_before_a_good_one_of_an_unknown_program(rules: RuleSet) -> None:
    opening = "".join(f"{line}\n" for line in OPENING)
    failed = 'Traceback (most recent call last):\n  File "tides.py", line 3, in <module>\n    read()\nKeyError: "sea"\n'
    good = "step 1/3 loss 2.1\nstep 2/3 loss 2.0\nstep 3/3 loss 1.9\nTraining completed.\n"
    after = diagnose_text(opening + failed + opening + good, rules)
    assert (after.verdict, len(after.case.story.runs)) == ("healthy", 2)
    before = diagnose_text(opening + good + opening + failed, rules)
    assert (before.cause, len(before.case.story.runs)) == ("application-exception", 2)


def test_lines_that_begin_with_a_time_are_looked_for_as_well() -> None:
    def stamped(minute: int) -> list[str]:
        return [f"[10/05 20:{minute}:{n:02}] {line}" for n, line in enumerate(OPENING)]

    assert found(stamped(24) + work(20), stamped(57)) == [27]


def test_blocks_are_searched_as_lines_are_read() -> None:
    rows = [*OPENING, *work(20), *OPENING, "réussi", *work(3), *OPENING, "x" * 5000]
    for size in (9, 40):
        openings = Openings()
        for first in range(0, len(rows), size):
            data = "".join(f"{row}\n" for row in rows[first : first + size]).encode()
            openings.search(LineBlock(data, first + 1, 0))
        assert openings.found == found(rows)
