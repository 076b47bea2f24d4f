"""The index of several jobs is read on any screen: nothing sticks out, and its links lead to the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nccl_triage.document.job_table import row, table
from nccl_triage.render import job_page
from tests.render.documents import diagnosed, healthy, unknown

from .pages import choose, sticking_out, texts


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Return an index of jobs, of which many have long names and failed alike."""
    rows = [row(f"sweep-of-learning-rates-with-a-long-name-{number}.out", diagnosed()) for number in range(30)]
    rows += [row("finished.out", healthy()), row("open.out", unknown())]
    for number, one in enumerate(rows):
        one["report"] = f"index-jobs/{number:03d}.html"
    path = tmp_path / "index.html"
    path.write_text(job_page.render(table(rows, [{"en": "left out: x", "zh": "略过：x"}]), "en"))
    return path


@pytest.mark.parametrize("width", [1280, 390, 320])
def test_nothing_sticks_out(show: Any, index: Path, width: int) -> None:
    page = show(index, width=width)
    assert sticking_out(page) == []
    choose(page, "lang-zh")
    assert sticking_out(page) == []


def test_the_first_screen_of_a_phone_tells_the_worst(show: Any, index: Path) -> None:
    page = show(index, width=390, height=844)
    bottom = page.locator("#failure-1 h3").bounding_box()
    assert bottom["y"] + bottom["height"] < 844


def test_every_job_has_a_link_and_both_languages(show: Any, index: Path) -> None:
    page = show(index)
    links = page.locator("#jobs tbody a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert len(set(links)) == 32
    choose(page, "lang-zh")
    assert texts(page, "untranslated") == []
