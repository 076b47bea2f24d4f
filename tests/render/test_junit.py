"""JUnit XML: standard parsers read it, and a dashboard shows a failed job as one failed case."""

from __future__ import annotations

import io
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml

from nccl_triage.render import junit, render

from .documents import ALL, HOSTILE, Doc, diagnosed, healthy, hostile, unknown


def parsed(document: Doc, lang: Any = "en") -> ElementTree.Element:
    return ElementTree.fromstring(render(document, "junit", lang=lang))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", sorted(ALL))
def test_standard_parsers_read_every_document(kind, lang):
    data = render(ALL[kind](), "junit", lang=lang)
    assert ElementTree.fromstring(data).tag == "testsuites"
    read = JUnitXml.fromstring(data)
    (suite,) = list(read)
    (case,) = list(suite)
    failed = kind != "healthy"
    assert (suite.name, suite.tests, suite.failures, suite.errors) == ("nccl-triage", 1, int(failed), 0)
    assert (read.tests, read.failures) == (1, int(failed))
    assert case.is_failure == failed
    assert case.is_passed != failed


def test_a_failure_says_what_happened_and_shows_the_evidence():
    failure = parsed(diagnosed()).find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.attrib == {"message": diagnosed()["headline"], "type": "gpu-out-of-memory"}
    body = failure.text or ""
    assert "logs/trainer.log:1182: [rank2]: torch.OutOfMemoryError" in body
    assert "do now: Lower the memory that one step needs" in body
    assert "more: nccl-triage explain gpu-out-of-memory" in body


def test_an_unknown_cause_has_its_own_type():
    failure = parsed(unknown()).find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.get("type") == "unknown"
    assert "possible: rank-divergence" in (failure.text or "")


def test_a_healthy_job_passes():
    case = parsed(healthy()).find("testsuite/testcase")
    assert case is not None
    assert case.find("failure") is None
    assert "the job went on to its end" in (case.findtext("system-out") or "")


def test_properties_carry_what_a_dashboard_can_filter_by():
    found = {p.get("name"): p.get("value") for p in parsed(diagnosed()).iter("property")}
    assert found["cause"] == "gpu-out-of-memory"
    assert found["confidence"] == "0.93"
    assert found["culprit"] == "rank 2 on node-a (gpu 2, pid 4002)"
    assert "cause" not in {p.get("name") for p in parsed(unknown()).iter("property")}


def test_the_text_is_that_of_the_language():
    root = parsed(diagnosed(), "zh")
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.get("message") == diagnosed()["headline_zh"]
    assert "立即处理：降低每一步所需的显存" in (failure.text or "")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["run/a.log"], "run/a.log"),
        (["run/1/a.log", "run/1/b.log", "run/2/a.log"], "run (3 logs)"),
        (["a.log", "b.log"], ". (2 logs)"),
        (["/x/a.log", "b.log"], ". (2 logs)"),
        (["/a.log", "/b.log"], "/ (2 logs)"),
        (["a\x00\nb\x1b[31m.log"], "a\\x00\\nb.log"),
        ([], "nccl-triage"),
    ],
)
def test_the_case_is_named_after_the_logs(paths, expected):
    assert junit.case_name({"inputs": [{"path": path} for path in paths]}, "en") == expected


def test_hostile_text_stays_text():
    data = render(hostile(), "junit")
    root = ElementTree.fromstring(data)
    assert {element.tag for element in root.iter()} == {
        "testsuites", "testsuite", "properties", "property", "testcase", "failure",
    }  # fmt: skip
    assert b"\x1b" not in data
    assert "\u202e" not in data.decode()
    assert b"<script>" not in data


@settings(max_examples=80, deadline=None)
@given(
    text=st.one_of(
        st.text(alphabet=st.characters(), max_size=60), st.sampled_from([HOSTILE, "\ufffe\uffff", "\x0b\x0c"])
    )
)
def test_any_text_gives_xml_that_parses(text):
    document = diagnosed()
    document["headline"] = document["inputs"][0]["path"] = text
    best = document["diagnoses"][0]
    best["cause"] = best["title"] = best["culprits"][0]["host"] = text
    best["evidence"][0]["text"] = best["fixes"][0]["commands"][0] = text
    data = render(document, "junit")
    list(JUnitXml.fromstring(data))
    # The parser of a browser is stricter than ElementTree's about the encoding that the first line names.
    assert ElementTree.parse(io.BytesIO(data)).getroot().tag == "testsuites"
    assert data.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n')
