"""axe-core finds no violation; headings, landmarks and the tables beside drawings are as a listener needs them."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from itertools import pairwise

import pytest

from .incidents import INCIDENTS, grouped, only
from .pages import choose, open_all

#: How a report is looked at: language, theme, width of the window.
VIEWS = {
    "light-en": ("lang-en", "theme-light", 1280),
    "dark-zh": ("lang-zh", "theme-dark", 1280),
    "light-zh-narrow": ("lang-zh", "theme-light", 320),
    "dark-en-narrow": ("lang-en", "theme-dark", 320),
}
#: Every view of the report with most sections and of the widest, one in turn of the others.
LOOKS = [
    pytest.param(*name.values, view, marks=name.marks)
    for number, name in enumerate(grouped(*INCIDENTS))
    for view in (VIEWS if name.values[0] in ("verified-8", "late-512") else [list(VIEWS)[number % 4]])
]

#: Rows of one table and items of one list are alike: a few of each are enough, and axe takes seconds for thousands.
_SHORTEN = """() => document.querySelectorAll('tbody, ul, ol, svg[role=img]')
  .forEach(one => [...one.children].slice(6).forEach(row => row.remove()))"""

_AXE = """async () => {
  const found = await axe.run(document, {resultTypes: ['violations'], rules: {'target-size': {enabled: true}}});
  return found.violations.map(v => ({id: v.id, impact: v.impact, help: v.help,
    where: v.nodes.slice(0, 5).map(n => n.target.join(' ') + ': ' + (n.any[0] || n.all[0] || n.none[0] || {}).message)}));
}"""


@cache
def axe() -> str:
    """Return axe-core, which the test environment brings along."""
    pytest.importorskip("axe_playwright_python", reason="needs axe-core: pip install '.[browser]'")
    return files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


def violations(page):
    page.evaluate(axe())
    return page.evaluate(_AXE)


def test_axe_is_recent():
    major, minor = re.match(r"/\*! axe v(\d+)\.(\d+)", axe()).groups()
    assert (int(major), int(minor)) >= (4, 10)


@pytest.mark.parametrize(("name", "view"), LOOKS, indirect=["name"])
def test_axe_finds_nothing(show, report, view):
    lang, theme, width = VIEWS[view]
    page = show(report, width=width, scripts=True)
    choose(page, lang)
    choose(page, theme)
    open_all(page)
    page.evaluate(_SHORTEN)
    assert violations(page) == []


def test_one_title_headings_in_steps_and_landmarks(show, report):
    page = show(report)
    levels = page.evaluate("() => [...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(h => +h.tagName[1])")
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert [(a, b) for a, b in pairwise(levels) if b > a + 1] == []
    for landmark in ("main", "header", "footer", "nav[aria-label]"):
        assert page.locator(landmark).count() == 1, landmark
    assert page.locator("section:not(:has(h1, h2))").count() == 0
    assert page.title()


def test_tables_name_their_columns_and_rows(show, report):
    page = show(report)
    for what in ("table:not(:has(caption))", "th:not([scope])", "table:not(:has(thead))", "caption:empty"):
        assert page.locator(what).count() == 0, what


_CHARTS = """() => [...document.querySelectorAll('main svg[role=img]')].map(chart => {
  const named = (chart.getAttribute('aria-labelledby') || '').split(' ').map(id => document.getElementById(id));
  const told = named.map(one => one ? one.textContent.trim() : '');
  const twin = [...document.querySelectorAll('details.twin table')].find(
    table => chart.compareDocumentPosition(table) & Node.DOCUMENT_POSITION_FOLLOWING);
  const labels = [...chart.querySelectorAll('text:not(.axis):not(.zh)')].map(text => text.textContent);
  return {told, section: chart.closest('section').id, twin: twin && twin.closest('section').id,
    labels, rows: twin ? twin.tBodies[0].rows.length : 0, table: twin ? twin.innerText || twin.textContent : '',
    cells: twin ? [...twin.querySelectorAll('td, th')].map(c => c.textContent).join(' | ') : ''};
})"""


def numbers(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?", text))


def within(number: str, told: set[str], spans: list[tuple[int, int]]) -> bool:
    """Tell whether the table has the number, alone or inside a range such as 0-7."""
    return number in told or (number.isdigit() and any(a <= int(number) <= b for a, b in spans))


def test_every_drawing_has_a_description_and_a_table_with_its_numbers(show, report, doc, name):
    page = show(report)
    charts = page.evaluate(_CHARTS)
    assert charts or doc["verdict"] != "diagnosed" or len(doc["job"]["ranks"]) < 2
    for chart in charts:
        assert len(chart["told"]) == 2, chart["section"]
        assert all(chart["told"]), chart["section"]
        assert chart["twin"] == chart["section"], f"{chart['section']} has a drawing without a table"
        assert chart["rows"], chart["section"]
        spans = [(int(a), int(b)) for a, b in re.findall(r"(\d+)-(\d+)", chart["cells"])]
        told = numbers(chart["cells"])
        drawn = set().union(*map(numbers, chart["labels"]), set())
        lost = {n for n in drawn if not within(n, told, spans)}
        assert lost == set() or name == "hostile-document", chart["section"]


@only("memory-1", "verified-8", "mismatch-8")
def test_meaning_is_not_told_by_colour_alone(show, report):
    """What is coloured as a state, a weight or a verdict says so in words too."""
    page = show(report)
    wordless = (
        "() => [...document.querySelectorAll('.badge')].filter(b => b.checkVisibility() && !b.innerText.trim()).length"
    )
    assert page.evaluate(wordless) == 0
    assert page.locator(".badge:visible").count() >= 3


class TestTheListenerHears:
    """Pages with a defect that axe must name."""

    @pytest.mark.parametrize(
        ("piece", "rule"),
        [
            ("<img src='data:,'>", "image-alt"),
            ("<p style='color:#aaa;background:#fff'>faint</p>", "color-contrast"),
            ("<input>", "label"),
        ],
    )
    def test_a_violation(self, show, tmp_path, piece, rule):
        path = tmp_path / "page.html"
        path.write_text(f"<!doctype html><html lang=en><title>x</title><main><h1>x</h1>{piece}</main>", "utf-8")
        found = violations(show(path, scripts=True))
        assert rule in {v["id"] for v in found if v["impact"] in ("serious", "critical")}
