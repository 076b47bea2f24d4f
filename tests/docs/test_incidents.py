"""The incidents of docs/causes/incidents.md: what a terminal shows of every cause, in both languages and at every width."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.diagnosis import placeholders
from nccl_triage.engine.schema import RuleSet
from nccl_triage.knowledge import catalogue
from nccl_triage.render import render
from nccl_triage.render.short_text import COLUMNS, LINES

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("incident_pages", ROOT / "docs" / "incident_pages.py")
assert SPEC is not None
assert SPEC.loader is not None
sys.path.insert(0, str(ROOT / "docs"))
incident_pages = sys.modules.setdefault("incident_pages", importlib.util.module_from_spec(SPEC))
SPEC.loader.exec_module(incident_pages)
INCIDENTS = incident_pages.INCIDENTS


def document(name: str) -> dict[str, Any]:
    return dict(incident_pages.documents()[name])


def shown(name: str, lang: Any = "en", width: int = COLUMNS) -> list[str]:
    return render(document(name), "text", lang=lang, width=width).decode().splitlines()


def test_every_cause_is_there(rules: RuleSet) -> None:
    found = [document(name)["diagnoses"][0]["cause"] for name in INCIDENTS if document(name)["diagnoses"]]
    assert set(rules.causes) <= set(found)
    assert len(INCIDENTS) >= 60


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident_is_told_in_a_few_lines(name: str) -> None:
    found = document(name)
    for lang in ("en", "zh"):
        lines = shown(name, lang)
        if found["verdict"] == "diagnosed":
            assert len(lines) <= LINES, (lang, len(lines))
        said = [line for line in lines if len(line.strip()) > 12]
        assert len(said) == len(set(said))  # nothing twice
        headline = found["headline" if lang == "en" else "headline_zh"]
        assert headline.split()[0] in lines[0]


@pytest.mark.parametrize("width", [60, 200])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_width_changes_where_lines_break_and_not_what_is_told(lang: Any, width: int) -> None:
    for name in INCIDENTS[::7]:
        usual, other = ("".join(" ".join(shown(name, lang, columns)).split()) for columns in (COLUMNS, width))
        for step in ("fixes", "next_check"):
            assert (step in usual) == (step in other)
        best = (document(name)["diagnoses"] or [{}])[0]
        assert (str(best.get("cause")) in usual) == (str(best.get("cause")) in other)


@pytest.mark.parametrize("name", INCIDENTS)
def test_what_a_command_needs_is_known_or_found_before(name: str) -> None:
    """A name that no line tells stands open in a command only behind the command that finds it."""
    for best in document(name)["diagnoses"][:1]:
        for fix in best["fixes"]:
            missing = [
                (word, command)
                for number, command in enumerate(fix["commands"])
                for word in placeholders.open_words(command)
                if word in catalogue.finders()
                and not any(
                    text in fix["commands"][:number] for _, text in catalogue.finders()[word].choices
                )
                and any(platform == "otherwise" for platform, _ in catalogue.finders()[word].choices)
            ]  # fmt: skip
            assert missing == []
