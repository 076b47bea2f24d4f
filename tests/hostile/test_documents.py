"""Reports from elsewhere: whatever one of their values is, it is refused, or no format lets it act."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nccl_triage import resources
from nccl_triage.cli import cli
from nccl_triage.errors import EXIT_USAGE, InputError
from nccl_triage.render import FORMATS, json_output, markdown_text, render, validation
from tests.render import mutations
from tests.render.documents import ALL, diagnosed

SCHEMA = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_text("utf-8"))
DOCUMENTS = [
    json.loads(json_output.render(make())) for kind, make in sorted(ALL.items()) if kind not in ("large", "hostile")
]
VALUES = (*mutations.TEXTS, *mutations.OTHERS)
#: way -> a document that has it, and the place.
WAYS = {way: (document, place) for document in DOCUMENTS for place, way in mutations.places(document)}
#: One way in so many is tried, each part in a test of its own; pages take longest and are made for one in four.
SHARE, PARTS = 4, 4
LIGHT = tuple(form for form in FORMATS if form != "html")


@pytest.mark.parametrize("part", range(PARTS))
def test_every_value_is_refused_or_inert(part: int) -> None:
    tried = 0
    for number, (way, (document, place)) in enumerate(sorted(WAYS.items())[part :: SHARE * PARTS]):
        # A text that acts, and one of the other values in turn: together all of them at many places.
        for value in (VALUES[number % 3], VALUES[number % len(VALUES)]):
            spoilt = mutations.changed(document, place, value)
            if validation.problem(spoilt, SCHEMA) is None:
                tried += 1
                formats = tuple(FORMATS) if tried % 4 == 0 else LIGHT
                found = mutations.complaints(spoilt, formats, "zh" if tried % 3 == 0 else "en")
                assert list(found) == [], (way, value)
    assert tried > 10


BEST: mutations.Place = ("diagnoses", 0)


@pytest.mark.parametrize(
    "place",
    [
        (*BEST, "status"), (*BEST, "evidence", 0, "weight"),
        ("symptoms", 0, "role"), ("job", "ranks", 0, "state"), ("verdict",),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "text", ["\x1b[2J", "a\n::error::b", "[x](https://evil.example)", "www.evil.example", "<img>", "w" * 65, ""]
)
def test_a_word_that_is_none_is_refused(place: mutations.Place, text: str, tmp_path: Path) -> None:
    document = json.loads(json_output.render(diagnosed()))
    spoilt = mutations.changed(document, place, text)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(spoilt))
    for command in ("render", "verify"):
        result = CliRunner().invoke(cli, [command, str(path)])
        assert isinstance(result.exception, InputError), command
        assert result.exception.exit_code == EXIT_USAGE
        assert "is a damaged report" in result.exception.message
    # Whoever calls the library with it gets a question mark.
    assert list(mutations.complaints(spoilt)) == []


@pytest.mark.parametrize("value", [1e308, 7.5, -1e308, 10**18, 1e25, "7", True])
def test_lines_and_ranks_that_are_no_numbers_are_refused(value: Any) -> None:
    document = json.loads(json_output.render(diagnosed()))
    for place in (
        (*BEST, "evidence", 0, "line"),
        (*BEST, "evidence", 0, "end_line"),
        ("symptoms", 0, "ranks", 0),
        ("symptoms", 0, "count"),
    ):
        assert validation.problem(mutations.changed(document, place, value), SCHEMA) is not None, place


@pytest.mark.parametrize("text", ['{"schema_version": NaN}', '{"schema_version": Infinity}', '{"a": 1e999}'])
def test_what_json_does_not_have_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    result = CliRunner().invoke(cli, ["render", str(path)])
    assert isinstance(result.exception, InputError)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see www.evil.example", r"see www\.evil.example"),
        ("https://evil.example", r"https\://evil.example"),
        ("FTP://evil.example", r"FTP\://evil.example"),
        ("a@evil.example", "a`@`evil.example"),
        ("owner/name#12", "owner/name`#`12"),
        ("![x](y)", r"\!\[x\](y)"),
        ("<b>", r"\<b\>"),
        ("a|b", r"a\|b"),
        ("::error::x", r"\::error::x"),
        ("# not a heading", r"\# not a heading"),
        ("1. not a list", r"1\. not a list"),
        ("- not a list", r"\- not a list"),
        ("== underline", r"\== underline"),
    ],
)
def test_markup_of_markdown_is_text(text: str, shown: str) -> None:
    assert markdown_text.plain(text) == shown


def test_no_runner_obeys_a_line_of_a_log() -> None:
    document = json.loads(json_output.render(diagnosed()))
    lines = (
        "::add-mask::a\n  ::set-output name=a::b\n##[error]c\nd ##[add-mask]e\n##vso[task.complete]\n%0A::error::f,g"
    )
    document["diagnoses"][0]["evidence"][0].update(text=lines, path="a,b%0A::c.log", says=lines, says_zh=lines)
    document["diagnoses"][0]["fixes"][0]["commands"] = ["##[add-mask]x", "::error::y"]
    for form in FORMATS:
        if form == "html":
            continue
        text = render(document, form, verbose=2).decode()
        for line in text.splitlines():
            if form == "github":
                assert line.startswith(("::error ", "::notice ", "::warning "))
                assert "%0A::error" not in line  # what was written so is %250A
                assert "a,b" not in line.partition("::")[2].partition("::")[0]
            else:
                assert not line.lstrip().startswith("::"), (form, line)
            assert "##[" not in line, (form, line)
            assert "##vso[" not in line, (form, line)
    again = json.loads(render(document, "json"))
    assert again["diagnoses"][0]["evidence"][0]["text"] == lines
