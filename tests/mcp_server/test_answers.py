"""Answers fit a model's window whatever a document holds, and say what they leave out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nccl_triage.mcp_server import answers
from nccl_triage.mcp_server.access import CallRefusedError


def document(evidence: int, text: int) -> dict[str, Any]:
    line = {"path": "job.log", "line": 7, "text": "x" * text, "says": "y" * text, "weight": "strong", "score": 1.0}
    cause = {"cause": "straggler", "evidence": [line] * evidence, "fixes": [{"title": "Wait", "env": {}}] * 9}
    return {"verdict": "diagnosed", "headline": "z" * text, "diagnoses": [cause] * 5, "timeline": [line] * 999}


def test_a_summary_counts_what_it_leaves_out() -> None:
    told = json.loads(answers.summary(document(20, 10), "d3"))
    assert told["left_out"] == {"diagnoses": 1, "evidence": 4 * 12, "fixes": 4 * 6}
    assert "timeline" not in told and "score" not in str(told)
    assert "report(diagnosis='d3'" in told["more"]


@pytest.mark.parametrize("size", [(0, 0), (3, 100), (50, 3_000), (2_000, 100_000)])
def test_a_summary_always_fits(size: tuple[int, int]) -> None:
    made = answers.summary(document(*size), "d1")
    assert len(made) <= answers.LIMIT
    assert json.loads(made)["verdict"] == "diagnosed"


@pytest.mark.parametrize("filling", ["plain text ", '"\\\n', "中文\U000e0041"])
def test_the_pages_of_a_long_content_make_the_whole(filling: str) -> None:
    content = {"timeline": [filling * 900] * 20}
    whole, offset = "", 0
    while True:
        page = json.loads(made := answers.part(content, offset, "again with next_offset"))
        assert len(made) <= answers.LIMIT
        whole += page["part"]
        if not page["left_out"]:
            break
        offset = page["next_offset"]
    assert whole == answers.written(content)
    assert page["characters"] == len(whole)
    with pytest.raises(CallRefusedError, match="nothing at offset"):
        answers.part(content, len(whole), "")


def test_an_excerpt_that_is_too_long_keeps_the_lines_nearest_to_the_one_asked_for() -> None:
    found = {"path": "job.log", "first_line": 50, "lines": ["x" * 600] * 101}
    made = answers.excerpt(found, 100)
    shown = json.loads(made)
    numbers = [entry["line"] for entry in shown["lines"]]
    assert len(made) <= answers.LIMIT and shown["left_out"] == 101 - len(numbers)
    assert abs((100 - numbers[0]) - (numbers[-1] - 100)) <= 1


def test_a_document_is_told_in_one_language() -> None:
    made = {"says": "late", "says_zh": "太晚", "only_zh": "x", "list": [{"why": "a", "why_zh": None}]}
    assert answers.in_language(made, "zh") == {"says": "太晚", "only_zh": "x", "list": [{"why": "a"}]}
    assert answers.in_language(made, "en") == {"says": "late", "only_zh": "x", "list": [{"why": "a"}]}
