from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import orjson
import pytest

from nccl_triage import resources
from nccl_triage.render import json_output, render

from .documents import ALL, diagnosed, verified

SCHEMA = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_valid_and_allows_keys_that_later_versions_add():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    doc = diagnosed()
    doc["added_later"] = 1
    doc["diagnoses"][0]["evidence"][0]["added_later"] = 1
    VALIDATOR.validate(doc)


@pytest.mark.parametrize("kind", sorted(set(ALL) - {"hostile"}))
def test_documents_follow_the_schema(kind):
    VALIDATOR.validate(orjson.loads(json_output.render(ALL[kind]())))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.pop("headline_zh"),
        lambda d: d.update(schema_version="1"),
        lambda d: d.update(verdict="maybe"),
        lambda d: d["diagnoses"][0].update(confidence=1.2),
        lambda d: d["diagnoses"][0]["evidence"][0].update(line=0),
        lambda d: d["diagnoses"][0]["evidence"][0].pop("says_zh"),
        lambda d: d["diagnoses"][0]["culprits"][0].update(rank="2"),
        lambda d: d["job"]["ranks"][0].update(state="odd"),
        lambda d: d.update(diagnoses=[]),
        lambda d: d["tool"].update(rules="xyz"),
    ],
)
def test_the_schema_refuses_what_breaks_the_contract(spoil):
    doc = diagnosed()
    spoil(doc)
    assert list(VALIDATOR.iter_errors(doc))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda v: v.update(outcome="proved"),
        lambda v: v.pop("reason_zh"),
        lambda v: v["after"].update(confidence=1.2),
        lambda v: v["runs"][0].update(outcome="slow"),
        lambda v: v["runs"][0].pop("seconds"),
        lambda v: v["runs"][0]["errors"][0].update(rank="2"),
        lambda v: v["runs"][2]["bandwidth"].pop("busbw"),
        lambda v: v["runs"][2]["expected"].update(state="fine"),
        lambda v: v["reachability"][0].update(state="odd"),
        lambda v: v["hosts"][0]["interfaces"][0].update(speed_mbit="fast"),
        lambda v: v["findings"][0].update(ranks=["2"]),
        lambda v: v["narrowed"].update(kind="three"),
        lambda v: v["treatments"][0].update(passed="yes"),
        lambda v: v["notices"][0].pop("candidates"),
    ],
)
def test_the_schema_refuses_a_verification_that_breaks_the_contract(spoil):
    doc = verified()
    spoil(doc["diagnoses"][0]["verification"])
    assert list(VALIDATOR.iter_errors(doc))


@pytest.mark.parametrize("key", ["expected", "parts", "changed_zh"])
def test_runs_of_a_document_may_lack_what_was_added_since(key):
    doc = verified()
    for run in doc["diagnoses"][0]["verification"]["runs"]:
        del run[key]
    VALIDATOR.validate(doc)


def test_json_has_sorted_keys_and_ends_with_a_newline():
    data = json_output.render(diagnosed())
    assert data.endswith(b"}\n")
    assert list(orjson.loads(data)) == sorted(diagnosed())
    assert "显存".encode() in data


def test_what_json_cannot_carry_does_not_stop_it():
    doc = diagnosed()
    doc["inputs"][0]["path"] = Path("logs/b\udcff.log").as_posix()
    doc["collective"]["seq"] = 10**30
    doc["notes"] = ["\ud800 alone", (1, 2)]
    found = orjson.loads(json_output.render(doc))
    assert found["inputs"][0]["path"] == "logs/b\ufffd.log"
    assert found["collective"]["seq"] == 1e30
    assert found["notes"] == ["? alone", [1, 2]]


@pytest.mark.parametrize("kind", sorted(ALL))
def test_a_document_is_one_line_that_says_the_same_as_json(kind):
    data = render(ALL[kind](), "ndjson")
    assert data.count(b"\n") == 1
    assert data.endswith(b"}\n")
    assert orjson.loads(data) == orjson.loads(render(ALL[kind](), "json"))
