"""The verdict for a pager: at most three short lines, in both languages, that say what, who and what comes first."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.render import render
from nccl_triage.render.words import columns, confidence

from .documents import diagnosed, healthy, hostile, unknown, with_words
from .test_short_text import NAMES, document


def brief(doc: dict[str, Any], lang: Any = "en") -> list[str]:
    return render(doc, "brief", lang=lang).decode().splitlines()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_an_incident_fits_a_pager(name: str, lang: str) -> None:
    found = document(name)
    lines = brief(found, lang)
    assert 1 <= len(lines) <= 3
    assert all(columns(line) <= 200 for line in lines), lines
    said = found["headline" if lang == "en" else "headline_zh"]
    assert lines[0][:40] == said[:40]
    if found["verdict"] == "diagnosed":
        best = found["diagnoses"][0]
        assert best["cause"] in lines[1] and confidence(best["confidence"]) in lines[1]
        assert lines[2].startswith(("Fix first", "Restart", "Safe", "Not decided", "先", "排除", "现在", "尚"))


def test_a_cause_says_who_and_what_comes_first() -> None:
    found = diagnosed()
    lines = brief(
        {**found, "restart": {"decision": "exclude_then_restart", "exclude": ["gpu-b"], "why": "", "why_zh": ""}}
    )
    assert "culprit: " in lines[1]
    assert lines[2] == f"Restart without gpu-b: {found['diagnoses'][0]['fixes'][0]['title']}"


def test_a_host_that_failed_before_is_told() -> None:
    entry = {"says": "gpu-b failed 3 times in the 14 days before", "says_zh": "gpu-b 此前 14 天失败 3 次"}
    restart = {"decision": "fix_first", "exclude": [], "why": "", "why_zh": ""}
    assert brief({**diagnosed(), "restart": restart, "recurrence": [entry]})[2].endswith(f"; {entry['says']}")


def test_without_a_cause_the_candidates_are_named_and_a_healthy_job_takes_one_line() -> None:
    lines = brief(unknown())
    assert lines[1].startswith("possible causes: ")
    assert brief(healthy()) == [healthy()["headline"]]


def test_nothing_of_a_hostile_report_reaches_a_terminal() -> None:
    lines = brief(with_words({**hostile(), "tool": diagnosed()["tool"]}))
    assert len(lines) <= 3 and all(line.isprintable() for line in lines)
