"""JSON a line: reports of many logs can follow one another."""

from __future__ import annotations

import orjson
import pytest

from nccl_triage.render import render

from .documents import ALL


@pytest.mark.parametrize("kind", sorted(ALL))
def test_a_document_is_one_line_that_says_the_same_as_json(kind):
    data = render(ALL[kind](), "ndjson")
    assert data.count(b"\n") == 1
    assert data.endswith(b"}\n")
    assert orjson.loads(data) == orjson.loads(render(ALL[kind](), "json"))
