"""The dispatcher: every format from one document, the same bytes from report.json as from the run."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from nccl_triage.render import FORMATS, json_output, render

from .documents import ALL, diagnosed


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", sorted(ALL))
def test_a_report_from_json_is_byte_identical(kind, format, lang):
    doc = ALL[kind]()
    reread = orjson.loads(json_output.render(doc))
    direct = render(doc, format, lang=lang, verbose=1)
    assert direct == render(reread, format, lang=lang, verbose=1)
    assert direct.endswith(b"\n")
    direct.decode("utf-8")


@pytest.mark.parametrize("format", FORMATS)
def test_keys_that_an_older_report_lacks_are_no_error(format):
    doc = {
        "schema_version": 1,
        "tool": {"name": "nccl-triage", "version": "0.1.0"},
        "verdict": "diagnosed",
        "diagnoses": [{"cause": "straggler", "title": "Late", "status": "possible", "confidence": 0.5}],
        "job": {"ranks": [{"rank": 0, "state": "ok"}]},
        "symptoms": [{"signature": "a.b", "role": "root", "count": 1}],
        "timeline": [{"order": 1, "signature": "a.b", "role": "root", "path": "x", "line": 1}],
        "inputs": [{"path": "x", "bytes": 1, "lines": 1}],
    }
    assert b"straggler" in render(doc, format)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_has_its_module_and_its_tests(format):
    name = FORMATS[format].module
    assert callable(getattr(importlib.import_module(f"nccl_triage.render.{name}"), FORMATS[format].function))
    assert Path(__file__).with_name(f"test_{name}.py").exists()


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="unknown format 'pdf'"):
        render(diagnosed(), "pdf")


def test_only_html_imports_jinja2():
    code = (
        "import sys, orjson; from nccl_triage.render import render\n"
        "doc = orjson.loads(sys.stdin.buffer.read())\n"
        "from nccl_triage.render import FORMATS\n"
        "for name in set(FORMATS) - {'html'}: render(doc, name)\n"
        "assert 'jinja2' not in sys.modules\n"
        "render(doc, 'html'); assert 'jinja2' in sys.modules\n"
    )
    path = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"]
    subprocess.run(path, input=json_output.render(diagnosed()), check=True, timeout=60)
