"""On paper a report is whole: nothing cut off, what is folded away on the screen is there, the ground is white."""

from __future__ import annotations

import io
import unicodedata

import pytest

from .incidents import grouped, only
from .pages import choose, sticking_out

#: The width that an A4 page with margins of one centimetre leaves, in pixels of 1/96 inch.
PAPER = 718

#: Regions whose content is wider than they are: on paper nobody can scroll them.
_CUT = """() => [...document.querySelectorAll('main *')].filter(one =>
    one.scrollWidth > one.clientWidth + 2 && one.clientWidth > 0 && one.checkVisibility()
    && getComputedStyle(one).overflowX !== 'visible' && !one.matches('svg, svg *, .vh'))
  .map(one => `${one.closest('section').id} ${one.tagName}.${one.className}: ${one.scrollWidth} in ${one.clientWidth}`)
  .slice(0, 8)"""

_FOLDED = """() => [...document.querySelectorAll('details:not(.twin, .fold) > :not(summary)')]
  .filter(one => !one.getBoundingClientRect().height || !one.checkVisibility({contentVisibilityAuto: true}))
  .map(one => one.closest('section').id + ' ' + one.parentElement.querySelector('summary').innerText)"""


def letters(text: str) -> str:
    """Return the text without what a PDF's fonts may change: spaces, ligatures, variants of Chinese characters."""
    return "".join(unicodedata.normalize("NFKC", text).split())


def test_nothing_is_cut_off_on_paper(show, report):
    page = show(report, width=PAPER, media="print")
    assert sticking_out(page) == []
    assert page.evaluate(_CUT) == []
    assert page.evaluate(_FOLDED) == []
    assert page.locator("nav:visible, input:visible, button:visible").count() == 0


@only("memory-1", "verified-8")
def test_a_dark_report_is_printed_on_white(show, report):
    page = show(report, scheme="dark")
    choose(page, "theme-dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    grey = page.evaluate("() => getComputedStyle(document.body).color.match(/\\d+/g).map(Number)")
    assert max(grey) < 80


@pytest.mark.parametrize(
    ("name", "lang"),
    [
        pytest.param(*name.values, lang, marks=name.marks)
        for name, lang in zip(
            grouped("verified-8", "verified-8", "unknown-2", "mismatch-8"),
            ("lang-en", "lang-zh", "lang-zh", "lang-en"),
            strict=True,
        )
    ],
    indirect=["name"],
)
def test_the_pdf_has_every_section(show, report, doc, lang):
    pypdf = pytest.importorskip("pypdf", reason="needs pypdf: pip install '.[browser]'")
    page = show(report)
    choose(page, lang)
    page.emulate_media(media="print")
    title, headings = page.locator("h1").inner_text(), page.locator("h2:visible").all_inner_texts()
    pages = pypdf.PdfReader(io.BytesIO(page.pdf(format="A4"))).pages
    written = [letters(one.extract_text()) for one in pages]
    assert [number for number, text in enumerate(written, 1) if not text] == []
    assert letters(title)[:40] in written[0]
    assert [heading for heading in headings if letters(heading) not in "".join(written)] == []
    assert len(headings) >= 3
    assert len(pages) <= 60


@only("memory-1", "network-2", "mismatch-8", "healthy-4", "unknown-2")
@pytest.mark.parametrize("lang", ["lang-en", "lang-zh"])
def test_at_most_two_pages_stand_before_the_appendix(show, report, lang):
    pypdf = pytest.importorskip("pypdf", reason="needs pypdf: pip install '.[browser]'")
    page = show(report)
    choose(page, lang)
    page.emulate_media(media="print")
    appendix = letters(page.locator("#appendix-h").inner_text())
    pages = [letters(one.extract_text()) for one in pypdf.PdfReader(io.BytesIO(page.pdf(format="A4"))).pages]
    first = next(number for number, text in enumerate(pages) if text.startswith(appendix))
    assert 1 <= first <= 2


class TestThePaperShows:
    """Pages that paper would cut."""

    def test_a_region_that_scrolls(self, show, tmp_path):
        path = tmp_path / "page.html"
        text = "<main><section id=s><div style='overflow:auto'><div style='width:3000px'>x</div></div></section></main>"
        path.write_text(text, "utf-8")
        assert show(path, width=PAPER, media="print").evaluate(_CUT) != []

    def test_what_stays_folded(self, show, tmp_path):
        path = tmp_path / "page.html"
        path.write_text(
            "<main><section id=s><details><summary>more</summary><p>x</p></details></section></main>", "utf-8"
        )
        assert show(path, width=PAPER, media="print").evaluate(_FOLDED) == ["s more"]
