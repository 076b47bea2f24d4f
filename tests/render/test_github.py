"""Annotations of GitHub Actions: few, the root cause first, and nothing of a log is a command."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.render import github, render

from .documents import ALL, HOSTILE, Doc, diagnosed, evidence, healthy, unknown

COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-zA-Z]+=[^,:\r\n]*)(?:,[a-zA-Z]+=[^,:\r\n]*)*)::([^\r\n]*)")


def unescape(text: str) -> str:
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


def annotations(document: Doc, lang: Any = "en") -> list[tuple[str, dict[str, str], str]]:
    """Read the output as a runner does: one command a line, of the one shape that a runner knows."""
    text = render(document, "github", lang=lang).decode()
    assert text.endswith("\n")
    found = []
    for line in text[:-1].split("\n"):
        match = COMMAND.fullmatch(line)
        assert match, line
        pairs = dict(pair.split("=", 1) for pair in match[2].split(","))
        found.append((match[1], {key: unescape(value) for key, value in pairs.items()}, unescape(match[3])))
    return found


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", sorted(ALL))
def test_every_line_is_an_annotation(kind, lang):
    found = annotations(ALL[kind](), lang)
    assert 0 < len(found) <= github.MAX_ANNOTATIONS
    assert found[0][0] == ("notice" if kind == "healthy" else "error")
    assert "error" not in [level for level, _, _ in found[1:]]


def test_the_root_cause_is_first_and_its_evidence_follows():
    (root, where, says), *proof = annotations(diagnosed())
    assert root == "error"
    assert where == {"file": "logs/trainer.log", "line": "1182", "title": "nccl-triage: gpu-out-of-memory"}
    assert says.splitlines()[0] == diagnosed()["headline"]
    assert "culprit: rank 2 on node-a" in says
    assert "fix: Lower the memory that one step needs" in says
    assert [(level, item["line"]) for level, item, _ in proof] == [("notice", "1182"), ("notice", "1240")]
    assert "Watchdog caught collective" in proof[1][2]


def test_at_most_ten_whatever_the_evidence():
    document = diagnosed()
    document["diagnoses"][0]["evidence"] += [evidence("a.log", n, f"line {n}", f"says {n}", "weak") for n in range(40)]
    found = annotations(document)
    assert len(found) == 10
    assert [item["line"] for _, item, _ in found[:3]] == ["1182", "1182", "1240"]


def test_an_unknown_cause_is_an_error_and_possible_causes_are_warnings():
    document = unknown()
    document["symptoms"] = diagnosed()["symptoms"]
    found = annotations(document)
    assert [level for level, _, _ in found] == ["error", "warning", "warning", "warning"]
    assert found[0][1] == {"file": "logs/trainer.log", "line": "1182", "title": "nccl-triage: unknown"}
    assert found[1][1]["title"] == "possible: rank-divergence"
    assert "check: Does rank 2 fail again" in found[1][2]
    assert set(found[2][1]) == {"title"}


def test_a_healthy_job_is_a_notice():
    assert annotations(healthy()) == [("notice", {"title": "nccl-triage"}, healthy()["headline"])]


def test_standard_input_is_no_file():
    document = diagnosed()
    for item in document["diagnoses"][0]["evidence"]:
        item["path"] = "<stdin>"
    assert all(set(where) == {"title"} for _, where, _ in annotations(document))


def test_several_lines_are_a_range():
    document = diagnosed()
    document["diagnoses"][0]["evidence"][0].update(end_line=1185, text="one\ntwo\r\n")
    _, where, says = annotations(document)[1]
    assert (where["line"], where["endLine"]) == ("1182", "1185")
    assert says.endswith("\none\ntwo")


@pytest.mark.parametrize(
    "text",
    [
        "::set-env name=PATH::/evil",
        "x\n::add-mask::secret",
        "x\r\n::stop-commands::token\r",
        "\n##[error]gone\n##vso[task.setvariable]x",
        "::error file=a::b",
        "%0A::warning::c %0D%25",
        "a\u2028::debug::b\x0b::debug::c\x0c::debug::d\x85::debug::e",
        HOSTILE,
    ],
)
def test_log_text_cannot_be_a_command(text):
    document = diagnosed()
    best = document["diagnoses"][0]
    best["cause"] = best["title"] = best["culprits"][0]["host"] = document["headline"] = text
    best["evidence"][0].update(text=text, path=f"logs/{text}", says=text, line=-1)
    found = annotations(document)
    assert len(found) == 3
    raw = render(document, "github").decode()
    # Whatever else a program takes for the end of a line: no line begins with what the log says.
    assert all(line.startswith(("::error ", "::notice ")) for line in raw.splitlines())
    assert "##[" not in raw
    assert "##vso[" not in raw


@settings(max_examples=80, deadline=None)
@given(text=st.text(max_size=60), path=st.text(max_size=30))
def test_any_text_comes_back_as_it_was_shown(text, path):
    document = diagnosed()
    document["diagnoses"][0]["evidence"][1].update(text=text, path=path)
    found = annotations(document)
    assert len(found) == 3


def test_percent_colon_and_comma_are_escaped_where_they_have_a_meaning():
    line = github.annotation("error", "a: b, 50%", "c: d, 50%\ne", {"path": "x,y:z%.log", "line": 3})
    assert line == "::error file=x%2Cy%3Az%25.log,line=3,title=a%3A b%2C 50%25::c: d, 50%25%0Ae"


def fences(text: str) -> bool:
    """Tell whether every block of code that a text opens is closed."""
    open_with = ""
    for line in text.split("\n"):
        match = re.fullmatch(r"( *`{3,})[^`]*", line)
        if match and not open_with:
            open_with = match[1]
        elif match and line == open_with:
            open_with = ""
    return not open_with


@pytest.mark.parametrize("kind", ["diagnosed", "hostile", "unknown"])
def test_a_summary_is_whole_or_cut_with_a_sentence_and_closed_blocks(kind):
    report = render(ALL[kind](), "markdown").decode()
    size = len(report.encode())
    assert github.summary(report, size, "en") == report
    for room in [*range(0, 3000, 7), size - 1]:
        if room >= size:
            continue
        cut = github.summary(report, room, "en")
        assert len(cut.encode()) <= room
        assert fences(cut)
        assert cut or room < 800
        if cut:
            assert cut.startswith("## nccl-triage")
            assert cut.endswith("--format markdown shows all of it.\n")


def test_a_block_of_code_inside_a_list_is_closed_where_it_stands():
    report = "1. fix\n\n   ```sh\n   one\n   two\n   ```\n" + "x" * 1000
    cut = github.summary(report, 130, "en")
    assert "\n   one\n   ```\n" in cut or "\n   two\n   ```\n" in cut
    assert fences(cut)


def test_the_sentence_is_that_of_the_language():
    assert github.summary("a\n" * 1000, 500, "zh").endswith("--format markdown。\n")
