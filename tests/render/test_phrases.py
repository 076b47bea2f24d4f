"""Phrases that the formats share."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.redaction import mask_secrets, redact
from nccl_triage.render import phrases, render

from .documents import Doc, diagnosed, full


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
    assert (phrases.duration(seconds, "en"), phrases.duration(seconds, "zh")) == (en, zh)


def test_a_lower_bound_says_so() -> None:
    doc = full()
    doc["incident"]["at_least"] = True
    assert "at least" in phrases.incident_cost(doc, "en") and "至少" in phrases.incident_cost(doc, "zh")


def test_without_ranks_the_length_alone_is_told() -> None:
    doc = full()
    doc["incident"]["ranks"] = None
    assert phrases.incident_cost(doc, "en") == "lasted 11 min 14 s"


def test_old_documents_have_no_incident() -> None:
    doc = diagnosed()
    assert (phrases.incident_started(doc, "en"), phrases.incident_cost(doc, "en"), phrases.incident_story(doc)[:1]) == (
        "",
        "",
        phrases.incident_story(doc)[:1],
    )
    assert [step.key for step in phrases.incident_story(doc)] == ["story_consequence"]


def test_an_approximate_start_says_about() -> None:
    doc = full()
    doc["incident"]["about"] = True
    assert phrases.incident_started(doc, "en").startswith("about ") and phrases.incident_started(doc, "zh").startswith(
        "约"
    )


def test_who_waited_before_the_fault_is_told_first() -> None:
    doc = full()
    doc["incident"]["waiting_since"]["time"] = "2024-08-23 21:00:00"
    assert [step.key for step in phrases.incident_story(doc)][1:3] == ["story_waiting", "story_fault"]


def test_a_consequence_that_comes_first_is_only_a_sign() -> None:
    doc = full()
    doc["incident"]["first_fault"]["role"] = "cascade"
    keys = [step.key for step in phrases.incident_story(doc)]
    assert "story_sign" in keys and "story_fault" not in keys


LOG = "[rank1]: password=hunter22\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.fixture
def leaking(tmp_path: Path) -> Doc:
    path = tmp_path / "job.log"
    path.write_text(LOG * 2)
    document: Doc = diagnose([str(path)]).to_dict()
    document["notes"] = ["read with password=hunter22"]
    return document


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_a_report_names_the_secrets_that_it_masks(leaking: Doc, name: str) -> None:
    shown = " ".join(render(leaking, name).decode().split())
    assert "hunter22" not in shown
    assert "The input contains secrets (password), masked here" in shown.replace("\\", "")


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_a_redacted_report_says_so(leaking: Doc, name: str) -> None:
    shown = " ".join(render(redact(leaking), name, lang="zh").decode().split())
    assert "已脱敏" in shown
    assert "路径 1" in shown or "文件 1" in shown


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_nothing_taken_out_nothing_said(lang: phrases.Lang) -> None:
    document = mask_secrets(diagnosed())
    assert phrases.secrets_note(document, lang) == phrases.pseudonyms_note(document, lang) == ""
    assert "[secret:" not in render(document, "html", lang=lang).decode()


def test_every_kind_of_pseudonym_has_a_word_in_both_languages() -> None:
    from nccl_triage.redaction.pseudonyms import _COUNTED

    for lang in ("en", "zh"):
        said = phrases.pseudonyms_note({"redaction": {"pseudonyms": dict.fromkeys(_COUNTED, 2)}}, lang)
        assert "pseudonym_" not in said
    assert phrases.pseudonyms_note({"redaction": {"pseudonyms": {}}}, "en").endswith("(none).")
