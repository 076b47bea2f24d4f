"""The scanner: lines broken by a terminal, and who speaks at all."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import scan_text

CRASH = "[node12:311  :0:5102] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x52b00e)"
BEFORE = (
    "[2025-02-21 09:48:21 TP0] Prefill batch. #new-seq: 2, #new-token: 3044, #cached-token: 11, cache hit rate: 4.18"
)


def test_a_line_that_matches_alone_is_not_counted_again_when_joined(rules: RuleSet) -> None:
    observations = scan_text(f"{BEFORE}\n{CRASH}\n{BEFORE}\n", rules)
    assert [event.line for event in observations.events("os.ucx_crash")] == [2]


@pytest.mark.parametrize("width", [70, CRASH.index(" ", 62)], ids=["in a word", "before a blank"])
def test_a_message_broken_by_the_terminal_is_found(width: int, rules: RuleSet) -> None:
    broken = CRASH[:width] + "\n" + CRASH[width:]
    filler = "x" * width
    observations = scan_text(f"{filler}\n{filler}\n{broken}\n", rules)
    whole = scan_text(CRASH, rules)
    assert whole.count("os.ucx_crash") == observations.count("os.ucx_crash") == 1


def test_ordinary_lines_tell_which_ranks_there_are(rules: RuleSet) -> None:
    text = "".join(f"[rank{rank}]: an ordinary remark\n" for rank in (0, 3))
    found = scan_text(text, rules).events("line.speaker")
    assert [event.context.rank for event in found] == [0, 3]
