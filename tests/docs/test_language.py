"""Texts for people keep to docs/style.md: no banned word, no long sentence, no half-width punctuation in Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from nccl_triage.cli import cli, every_command

ROOT = Path(__file__).parents[2]
#: Words in a sentence of a title, or of what evidence says.
LONGEST = 35
#: Keys of the rules whose values are texts for people; others hold patterns, samples and ids.
_TEXTS = frozenset(
    ("en", "zh", "meaning", "says", "title", "why", "what", "caution", "look", "means", "claim", "instead")
)
_SHORT = frozenset(("says", "title"))
_NO_TEXT = frozenset(("match", "not", "pattern", "samples", "examples", "counterexamples", "commands", "command"))
_CODE = re.compile(
    r"^(```+|~~~+|:::+).*?^\1|<!--.*?-->|`[^`]*`|\]\([^)]*\)|<https?://[^>]*>|\{[^{}]*\}", re.DOTALL | re.MULTILINE
)
#: Folders of rules without texts for people.
_NO_WORDS = ("schema", "redaction")
#: Western punctuation between Chinese characters, and brackets within brackets.
_BAD_CHINESE = re.compile(
    "[\u4e00-\u9fff][,;!?]|[\u4e00-\u9fff]:(?![\u4e00-\u9fff])|[,;!?][\u4e00-\u9fff]|[\u4e00-\u9fff]\\(|（[^（）]*（"
)
_HALF_WIDTH = re.compile(r"[\u4e00-\u9fff][,;:?!](?!\d)|[,;:?!][\u4e00-\u9fff]|\([^()]*[\u4e00-\u9fff][^()]*\)(?!\w)")


def tables() -> list[dict[str, str]]:
    """Return the tables of docs/style.md: what is banned, and what is written instead."""
    found: list[dict[str, str]] = []
    for line in (ROOT / "docs" / "style.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if len(cells) == 2 and set(cells[0]) <= set("-"):
            found.append({})
        elif len(cells) == 2 and found and cells[0].startswith("`"):
            found[-1] |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), cells[1])
    return found


@cache
def banned() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what finds banned words in English and in Chinese."""
    english, chinese = (sorted(table, key=len, reverse=True) for table in tables())
    return (
        re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, english))})(?![\w-])", re.IGNORECASE),
        re.compile("|".join(map(re.escape, chinese))),
    )


def found_in(text: str) -> list[str]:
    """Return the banned words of a text, code left out."""
    plain = " ".join(_CODE.sub(" ", text).split())
    return [match.group() for pattern in banned() for match in pattern.finditer(plain)]


def too_long(text: str) -> list[str]:
    """Return the sentences of a text that have too many words."""
    plain = " ".join(_CODE.sub(" x ", text).split())
    return [sentence for sentence in re.split(r"(?<=[.!?;:])\s", plain) if len(sentence.split()) > LONGEST]


def texts(data: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts for people of a file of rules, each with the key that says what it is for."""
    if isinstance(data, dict):
        for name, value in data.items():
            if name in ("en", "zh") and isinstance(value, str):
                yield (key if name == "en" else "zh"), value
            elif name not in _NO_TEXT:
                yield from texts(value, str(name))
    elif isinstance(data, list):
        for value in data:
            yield from texts(value, key)
    elif isinstance(data, str) and key in _TEXTS:
        yield key, data


def pages() -> list[Path]:
    """Return the pages of the project that are to keep to the style; that which lists the banned words does not."""
    every = [*ROOT.glob("README*.md"), ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    every.append(ROOT / "corpus" / "wild" / "README.md")
    return sorted(page for page in every if page.name != "style.md")


def rule_files() -> list[Path]:
    return sorted(path for path in (ROOT / "rules").rglob("*.yaml") if path.parts[-2] not in _NO_WORDS)


def test_the_style_bans_words_in_both_languages() -> None:
    assert [len(table) > 3 for table in tables()] == [True, True]
    assert found_in("The peer raised a Time-out; it were `time-outs`.") == ["Time-out", "it were"]
    assert found_in("代价：若是") == ["代价", "若是"]
    assert found_in("Timeouts, a runtime-out-of-date and timeouts.") == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_no_banned_word(page: Path) -> None:
    assert found_in(page.read_text(encoding="utf-8")) == []


def test_chinese_has_full_width_punctuation() -> None:
    text = _CODE.sub("`", (ROOT / "README.zh.md").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    assert [match.group() for line in lines for match in _HALF_WIDTH.finditer(line)] == []


@pytest.mark.parametrize("path", rule_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_rules_keep_to_the_style(path: Path) -> None:
    for key, text in texts(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)):
        assert found_in(text) == [], text
        assert key not in _SHORT or too_long(text) == [], text
        assert key != "zh" or _BAD_CHINESE.search(text) is None, text


def test_the_walk_over_rules_finds_titles_and_what_evidence_says() -> None:
    path = ROOT / "rules" / "causes" / "network" / "port-in-use.yaml"
    found = list(texts(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)))
    assert {"title", "says", "zh"} <= {key for key, _ in found}
    assert too_long(" ".join(["word"] * (LONGEST + 1))) and not too_long(" ".join(["word"] * LONGEST))


def test_no_text_of_ours_looks_like_the_name_of_a_host() -> None:
    """What stands behind 主机： in a log is a name, which --redact replaces."""
    rows = yaml.load((ROOT / "rules" / "redaction" / "names.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    (named,) = [row["pattern"] for row in rows["names"] if "主机" in row.get("guard", ())]
    for path in rule_files():
        for key, text in texts(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)):
            match = re.search(named, text) if key == "zh" else None
            assert match is None or (match["name"] or "").isascii(), text


def test_help_keeps_to_the_style() -> None:
    commands: dict[tuple[str, ...], click.Command] = {(): cli, **every_command()}
    for command in commands.values():
        helps = [getattr(param, "help", None) for param in command.params]
        for text in (command.help, command.short_help, command.epilog, *helps):
            assert found_in(text or "") == [], text
