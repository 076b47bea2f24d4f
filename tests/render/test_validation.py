"""What passes as a report document can be rendered, and what cannot be rendered does not pass."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nccl_triage import resources
from nccl_triage.render import FORMATS, json_output, render, validation

from .documents import ALL, HOSTILE, diagnosed

SCHEMA = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_text("utf-8"))
DOCUMENTS = {kind: json.loads(json_output.render(make())) for kind, make in ALL.items() if kind != "large"}
Place = tuple[Any, ...]


def problem(document: Any) -> str | None:
    return validation.problem(document, SCHEMA)


@pytest.mark.parametrize("kind", sorted(set(DOCUMENTS) - {"hostile"}))  # its words are none
def test_documents_have_the_shape(kind):
    assert problem(DOCUMENTS[kind]) is None


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (lambda d: d.pop("headline"), "$.headline"),
        (lambda d: d.update(diagnoses={}), "$.diagnoses"),
        (lambda d: d.update(diagnoses=["straggler"]), "$.diagnoses[0]"),
        (lambda d: d["diagnoses"][0]["evidence"][1].update(line="7"), "$.diagnoses[0].evidence[1].line"),
        (lambda d: d["diagnoses"][0]["evidence"][1].update(line=True), "$.diagnoses[0].evidence[1].line"),
        (lambda d: d["diagnoses"][0]["evidence"][1].update(line=7.5), "$.diagnoses[0].evidence[1].line"),
        (lambda d: d["diagnoses"][0]["evidence"][0].update(line=0), "$.diagnoses[0].evidence[0].line"),
        (lambda d: d["diagnoses"][0].update(confidence=2), "$.diagnoses[0].confidence"),
        (lambda d: d["diagnoses"][0].update(status=3), "$.diagnoses[0].status"),
        (lambda d: d["diagnoses"][0].update(verification=[]), "$.diagnoses[0].verification"),
        (lambda d: d["diagnoses"][0].update(next_check="try"), "$.diagnoses[0].next_check"),
        (lambda d: d.update(diagnoses=d["diagnoses"] * 3), "$.diagnoses"),
        (lambda d: d["job"]["env"].update(NCCL_DEBUG=3), "$.job.env.NCCL_DEBUG"),
        (lambda d: d["job"]["hosts"][0].update(ranks=[0, None]), "$.job.hosts[0].ranks[1]"),
        (lambda d: d["job"].update(ranks=None), "$.job.ranks"),
        (lambda d: d.update(collective=3), "$.collective"),
    ],
)
def test_the_first_thing_that_is_wrong_is_named(spoil, where):
    document = copy.deepcopy(DOCUMENTS["diagnosed"])
    spoil(document)
    assert problem(document) == where


@pytest.mark.parametrize("value", [None, [], "report", 7, True, {}, [{}]])
def test_other_values_are_no_document(value):
    assert problem(value) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(added_later={"a": [1]}),
        lambda d: d["diagnoses"][0].update(status="probable"),
        lambda d: d["job"]["ranks"][0].update(state="sleeping"),
        lambda d: d["symptoms"][0].update(role="omen"),
        lambda d: d["collective"].update(seq=1e30),
        lambda d: d.pop("incident", None),
    ],
)
def test_older_and_newer_documents_pass_and_are_rendered(change):
    document = copy.deepcopy(DOCUMENTS["diagnosed"])
    change(document)
    assert problem(document) is None
    for format in FORMATS:
        assert render(document, format)


def test_what_is_required_is_what_the_first_version_had():
    """A key that is required later would make every report of before unreadable."""
    assert set(SCHEMA["required"]) == {
        "schema_version", "tool", "verdict", "headline", "headline_zh", "diagnoses", "collective", "job", "symptoms",
        "timeline", "excerpts", "inputs", "notes", "notes_zh", "timing",
    }  # fmt: skip


def test_a_document_nested_too_deep_is_refused():
    document = copy.deepcopy(DOCUMENTS["healthy"])
    document["added_later"] = json.loads("[" * 900 + "]" * 900)
    assert problem(document) == "$"
    document["added_later"] = json.loads("[" * 20 + "]" * 20)
    assert problem(document) is None


def _places(value: Any, place: Place = ()) -> list[Place]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, item in items for found in _places(item, (*place, key)))]


_SAME_KIND = {
    str: st.sampled_from(["", HOSTILE, "x" * 5000, "{0}%s\\", "2024-13-45 99:99:99", "established", "passed", "-1"]),
    bool: st.booleans(),
    int: st.sampled_from([0, -1, 1, 4096, 10**15, 2**53, 2**63, -(2**63)]),
    float: st.sampled_from([0.0, -1.5, 1e300, -1e300, 5e-324, 0.999]),
    list: st.sampled_from([[], [None], [[]], [{}], ["x"], [1, 1]]),
    dict: st.sampled_from([{}, {"": None}, {"x": "y"}]),
    type(None): st.sampled_from(["x", 1, {}, []]),
}


@st.composite
def _changed(draw: Any) -> Any:
    document = copy.deepcopy(DOCUMENTS[draw(st.sampled_from(sorted(set(DOCUMENTS) - {"hostile"})))])
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(_places(document)[1:]))
        holder = document
        for key in way:
            holder = holder[key]
        how = draw(st.sampled_from(["same kind", "same kind", "same kind", "null", "twice", "gone"]))
        if how == "same kind":
            holder[last] = draw(_SAME_KIND[type(holder[last])])
        elif how == "null":
            holder[last] = None
        elif how == "twice" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
        else:
            del holder[last]
    return document


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=_changed(), lang=st.sampled_from(["en", "zh"]))
def test_whatever_passes_is_rendered_in_every_format(document, lang):
    if problem(document) is None:
        for format in FORMATS:
            assert render(document, format, lang=lang, verbose=1).endswith(b"\n")


def test_the_program_of_today_writes_what_it_can_read():
    assert problem(json.loads(render(diagnosed(), "json"))) is None
