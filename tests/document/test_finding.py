"""The finding in one sentence: templates of a cause, filled with what the log says, or the title and the strongest line."""

from __future__ import annotations

import pytest

from nccl_triage.document.line_values import VALUE, cut
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

STEP = "[rank{rank}]: step 3/90 loss 2.1\n"
TRACE = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/app/train.py", line 90, in <module>\n'
    '[rank{rank}]:   File "/app/calls.py", line 73, in look_up\n'
    "{library}[rank{rank}]: {error}\n"
)
INSIDE = '[rank1]:   File "/v/lib/python3.11/site-packages/torch/nn/functional.py", line 9, in embedding\n'


def headline(text: str, rules: RuleSet, language: str = "") -> str:
    steps = "".join(STEP.format(rank=rank) for rank in range(4))
    return str(diagnose_text(steps + text, rules).to_dict()[f"headline{language}"])


@pytest.mark.parametrize("library", ["", INSIDE], ids=["raised in the user's code", "raised in a library"])
def test_an_exception_is_told_with_its_rank_its_message_and_the_users_frame(library: str, rules: RuleSet) -> None:
    text = TRACE.format(rank=1, error="KeyError: 'fr'", library=library)
    assert "Rank 1 raised KeyError: 'fr' at calls.py:73, look_up." in headline(text, rules)
    assert "rank 1 在 calls.py:73, look_up 抛出 KeyError: 'fr'。" in headline(text, rules, "_zh")


def test_a_long_message_is_cut(rules: RuleSet) -> None:
    found = headline(TRACE.format(rank=1, error="ValueError: " + "bad value " * 60, library=""), rules)
    assert "ValueError: bad value" in found
    assert len(found) < VALUE + 120


def test_a_text_is_cut_to_one_line() -> None:
    assert cut("a\n  b\tc", 20) == "a b c"
    assert cut("x" * 30, 10) == "x" * 9 + "…"
