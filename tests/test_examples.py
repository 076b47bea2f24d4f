"""The example reports in the repository are what the pipeline makes of the corpus today."""

from __future__ import annotations

import struct
import tempfile

import pytest

from reports.examples.photograph import HEIGHT, WIDTH
from reports.examples.render import EXAMPLES, HERE, ROOT, html

AGAIN = "the report is not what rules, model and templates make of it today: run `make reports`, look at it, commit it"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_committed_report_is_a_fresh_one(example):
    committed = (HERE / f"{example.name}.html").read_bytes()
    assert committed == html(example), AGAIN
    assert len(committed) < 1_000_000
    for folder in (str(ROOT), tempfile.gettempdir() + "/tmp"):
        assert folder.encode() not in committed


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_picture_shows_the_first_screen(example):
    picture = (HERE / f"{example.name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", picture[16:24]) == (WIDTH, HEIGHT)
    assert len(picture) < 200_000


def test_nothing_else_lies_among_the_examples():
    names = {example.name for example in EXAMPLES}
    found = {path.stem for path in HERE.iterdir() if path.suffix in (".html", ".png")}
    assert found == names
