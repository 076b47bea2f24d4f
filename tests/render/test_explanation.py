"""Pages of ``explain`` as text, Markdown and JSON: every entry, both languages, 80 columns, hostile words."""

from __future__ import annotations

import json
import re

import pytest

from nccl_triage.engine.schema import WEIGHTS, RuleSet
from nccl_triage.knowledge import catalogue, describe, entries, lookup, timeout_plan, timeouts
from nccl_triage.knowledge.variables import shipped
from nccl_triage.render import explanation
from nccl_triage.render.explanation import ExplanationBlock
from nccl_triage.render.explanation_pages import page
from nccl_triage.render.words import Lang, columns

CJK = re.compile("[\u4e00-\u9fff]")
KINDS = ("problems", "causes", "symptoms", "advice", "variables", "codes", "families", "topics")


def entries_of(rules: RuleSet, kind: str) -> list[dict[str, object]]:
    names = [row["id"] for row in lookup.listing(kind, rules)["rows"]]
    found = [lookup.exact(name, rules) for name in names]
    return [describe.found(item, rules) for item in found if item is not None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_page_can_be_shown(rules: RuleSet, kind: str, lang: Lang) -> None:
    data = entries_of(rules, kind)
    assert data
    for entry in data:
        blocks = page(entry, lang)
        assert blocks[0].kind == "title"
        shown = explanation.text(blocks)
        assert ": None" not in shown
        assert explanation.markdown(blocks).startswith("## ")


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", ["timeout 600000", "timeout 777777", "NCCL_DEBU", "NCCL_NVB_DISABLE", "VLLM_QQ", "12"])
def test_pages_without_an_entry_can_be_shown(rules: RuleSet, name: str, lang: Lang) -> None:
    found = lookup.exact(name, rules) or lookup.numbered(name)[0]
    assert ": None" not in explanation.text(page(describe.found(found, rules), lang))


@pytest.mark.parametrize("kind", ["problems", "causes", "symptoms", "advice", "variables", "codes"])
def test_english_pages_hold_no_chinese_and_chinese_pages_do(rules: RuleSet, kind: str) -> None:
    for entry in entries_of(rules, kind):
        assert not CJK.search(explanation.text(page(entry, "en"))), entry["id"]
        assert CJK.search(explanation.text(page(entry, "zh"))), entry["id"]


@pytest.mark.parametrize(
    "english",
    ["What it is", "Speaks for it", "What to do", "Cheapest check", "Caution", "Sources", "Printed by", "Evidence for",
     "Within", "Symptoms", "Program:", "Default:"],
)  # fmt: skip
def test_no_heading_stays_english(rules: RuleSet, english: str) -> None:
    names = ("rank-divergence", "nccl.duplicate_gpu", "NCCL_IB_TIMEOUT", "remove-model-eval", "cuda 802", "symptoms")
    for name in names:
        found = lookup.exact(name, rules)
        assert found is not None
        assert english not in explanation.text(page(describe.found(found, rules), "zh"))
    assert any(
        english in explanation.text(page(describe.found(found, rules), "en"))
        for name in names
        if (found := lookup.exact(name, rules)) is not None
    )


def test_a_signatures_english_meaning_is_said_to_be_english(rules: RuleSet) -> None:
    data = describe.signature(rules.signatures["nccl.duplicate_gpu"], rules)
    assert "只有英文" in explanation.text(page(data, "zh"))
    assert "只有英文" not in explanation.text(page(data, "en"))


def test_lines_fit_the_terminal_but_for_commands(rules: RuleSet) -> None:
    for lang in ("en", "zh"):
        for name in ("rank-divergence", "NCCL_SOCKET_IFNAME", "symptoms", "ib-status", "timeouts", "advice"):
            found = lookup.exact(name, rules)
            data = describe.found(found, rules) if found else lookup.listing("advice", rules)
            for line in explanation.text(page(data, lang), width=80).splitlines():  # type: ignore[arg-type]
                if not line.lstrip().startswith(("$ ", "# ", "- http")) and " " in line.strip():
                    assert columns(line) <= 80, line


def test_nothing_is_folded_or_cut_in_a_pipe(rules: RuleSet) -> None:
    found = lookup.exact("symptoms", rules)
    assert found is not None
    shown = explanation.text(page(describe.found(found, rules), "en"))
    row = catalogue.symptoms()["watchdog-timeout"]
    assert row.means["en"] in shown
    assert "milliseconds before timing out." in shown


def test_order_is_what_it_is_evidence_action_check_sources(rules: RuleSet) -> None:
    data = describe.cause(rules.causes["straggler"], rules)
    heads = [block.text for block in page(data, "en") if block.kind == "head"]
    assert heads == [
        "What it is", "Speaks for it", "Speaks against it", "What to do, and when", "Fixes in full", "Cheapest check",
        "How to confirm it on the hardware", "Common advice about it", "Sources",
    ]  # fmt: skip


def test_hostile_words_are_harmless() -> None:
    data = describe.unknown_name("NCCL_X", "\x1b[31m|`<script>\u202e\n")
    for shown in (explanation.text(page(data, "en")), explanation.markdown(page(data, "en"))):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    blocks = [
        ExplanationBlock("title", "a|b <b>*c*"),
        ExplanationBlock("table", heads=("x", "y"), rows=(("`|", "<i>|"),)),
    ]
    shown = explanation.markdown(blocks)
    assert "<b>" not in shown
    assert r"\|" in shown


def test_json_is_one_object_with_both_languages(rules: RuleSet) -> None:
    data = [describe.variable(entry, rules) for entry in shipped().all()[:3]]
    document = json.loads(explanation.json(data))
    assert document["schema_version"] == 1
    assert all(entry["meaning"] and entry["meaning_zh"] for entry in document["entries"])
    assert explanation.render(data, "json", "en", page, None, False) == explanation.json(data)


def test_several_entries_stand_one_below_the_other(rules: RuleSet) -> None:
    data = [describe.found(found, rules) for found in lookup.numbered("12")] * 2
    shown = explanation.render(data, "text", "en", page, None, False).decode()
    assert shown.count("IBV_WC_RETRY_EXC_ERR") == 2
    assert explanation.render(data, "markdown", "en", page, None, False).decode().count("## ib") == 2


def test_colour_only_where_it_is_asked_for(rules: RuleSet) -> None:
    blocks = page(describe.cause(rules.causes["straggler"], rules), "en")
    assert "\x1b[" in explanation.text(blocks, 80, color=True)
    assert "\x1b[" not in explanation.text(blocks, 80)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_of_time_outs_shows_the_arithmetic(lang: Lang) -> None:
    message = timeouts.message("ALLREDUCE", 10**9, 8, "bf16")
    plan = timeout_plan.plan(timeouts.Assumptions(70e9), message, 600)
    shown = explanation.text(page(plan, lang))
    assert "70e9 x 2 B / 1 GB/s" in shown
    assert "2 GB x 1.75 / 0.1 GB/s" in shown
    assert "--state-bytes 14 B" in shown
    assert "DEEPSPEED_TIMEOUT=60" in shown
    assert ("does not explain" in shown) is (lang == "en")


def test_a_phase_of_hours_is_to_leave_the_group() -> None:
    plan = timeout_plan.plan(timeouts.Assumptions(1e12))
    assert plan["model"]["warning"]
    assert "instead of waiting" in explanation.text(page(plan, "en"))
    assert timeout_plan.plan(timeouts.Assumptions(1e9))["model"]["warning"] is None


def test_every_word_is_used() -> None:
    from pathlib import Path

    folder = Path(explanation.__file__).parent
    source = (folder / "explanation_pages.py").read_text("utf-8")
    values = {
        *entries.STATUSES, *entries.KINDS, *entries.VERDICTS, *entries.URGENCIES, *entries.LEVELS, *WEIGHTS, *lookup.KINDS, "hits",
    }  # fmt: skip
    unused = [
        key
        for key in explanation.WORDS
        if not re.search(f"[\"']{re.escape(key)}[\"']", source)
        and key not in values
        and not key.startswith(("role_", "severity_", "stage_", "tells_"))
    ]
    assert unused == []


def test_words_are_in_both_languages_and_used_once() -> None:
    assert explanation.say("status", "en") == "Status"
    for key, pair in explanation.WORDS.items():
        assert pair.en and pair.zh, key
        assert CJK.search(pair.zh), key
        assert set(re.findall(r"\{\w+\}", pair.en)) == set(re.findall(r"\{\w+\}", pair.zh)), key
