from __future__ import annotations

import pytest

from nccl_triage.render import incident

from .documents import diagnosed, full


@pytest.mark.parametrize(
    ("seconds", "en", "zh"),
    [
        (0.2, "less than a second", "不到 1 秒"),
        (45, "45 s", "45 秒"),
        (60, "1 min", "1 分钟"),
        (674, "11 min 14 s", "11 分钟 14 秒"),
        (3600, "1 h", "1 小时"),
        (43200.4, "12 h", "12 小时"),
        (90061, "1 d 1 h", "1 天 1 小时"),
        (86460, "1 d", "1 天"),
    ],
)
def test_spans_in_two_units(seconds: float, en: str, zh: str) -> None:
    assert (incident.duration(seconds, "en"), incident.duration(seconds, "zh")) == (en, zh)


def test_a_lower_bound_says_so() -> None:
    doc = full()
    doc["incident"]["at_least"] = True
    assert "at least" in incident.cost(doc, "en") and "至少" in incident.cost(doc, "zh")


def test_without_ranks_the_length_alone_is_told() -> None:
    doc = full()
    doc["incident"]["ranks"] = None
    assert incident.cost(doc, "en") == "lasted 11 min 14 s"


def test_old_documents_have_no_incident() -> None:
    doc = diagnosed()
    assert (incident.started(doc, "en"), incident.cost(doc, "en"), incident.story(doc)[:1]) == (
        "",
        "",
        incident.story(doc)[:1],
    )
    assert [step.key for step in incident.story(doc)] == ["story_consequence"]


def test_an_approximate_start_says_about() -> None:
    doc = full()
    doc["incident"]["about"] = True
    assert incident.started(doc, "en").startswith("about ") and incident.started(doc, "zh").startswith("约")


def test_who_waited_before_the_fault_is_told_first() -> None:
    doc = full()
    doc["incident"]["waiting_since"]["time"] = "2024-08-23 21:00:00"
    assert [step.key for step in incident.story(doc)][1:3] == ["story_waiting", "story_fault"]


def test_a_consequence_that_comes_first_is_only_a_sign() -> None:
    doc = full()
    doc["incident"]["first_fault"]["role"] = "cascade"
    keys = [step.key for step in incident.story(doc)]
    assert "story_sign" in keys and "story_fault" not in keys
