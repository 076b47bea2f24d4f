"""The first screen answers the questions; nothing is cut off at any width; files keep to their sizes."""

from __future__ import annotations

from .incidents import INCIDENTS, only
from .pages import choose, open_all, sticking_out

#: What the first screen of a report tells, by its verdict.
FIRST = {
    "diagnosed": {"what", "cause", "confidence", "culprit", "outcome", "restart", "todo", "verified"},
    "unknown": {"what", "cause", "outcome", "restart", "todo"},
    "healthy": {"what", "cause", "outcome"},
}

#: Pairs of labels of one drawing that cover each other by more than a hair.
_COLLIDING = """() => {
  const found = [];
  for (const chart of document.querySelectorAll('main svg[role=img]')) {
    const labels = [...chart.querySelectorAll('text')].filter(t => t.checkVisibility() && t.textContent.trim())
      .map(t => [t.textContent.trim(), t.getBoundingClientRect()]).slice(0, 400);
    const [frame] = [chart.getBoundingClientRect()];
    labels.forEach(([one, a], i) => {
      if (a.right > frame.right + 1 || a.left < frame.left - 1 || a.bottom > frame.bottom + 1 || a.top < frame.top - 1)
        found.push(`${one} leaves the drawing`);
      for (const [two, b] of labels.slice(i + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 3) found.push(`${one} x ${two}`);
      }
    });
  }
  return found.slice(0, 10);
}"""


#: Where the marked elements of the first screen end, in pixels from the top.
_MARKED = """() => Object.fromEntries([...document.querySelectorAll('#summary [data-first]')]
  .filter(one => one.checkVisibility() && one.innerText.trim())
  .map(one => [one.dataset.first, Math.round(one.getBoundingClientRect().bottom)]))"""

ORDINARY = only(*(name for name in INCIDENTS if not name.startswith("hostile")))


@ORDINARY
def test_the_first_screen_answers_the_questions(show, report, doc):
    page = show(report, width=1280, height=800)
    assert page.locator("h1[data-first=what], [data-first=what] h1").count() == 1
    for lang in ("lang-en", "lang-zh"):
        choose(page, lang)
        found = page.evaluate(_MARKED)
        assert set(found) >= FIRST[doc["verdict"]]
        assert {what: end for what, end in found.items() if end > 800} == {}


def test_nothing_sticks_out_at_any_width(show, report):
    page = show(report, width=1920)
    open_all(page)
    found = {}
    for width in (1920, 1280, 768, 320):
        page.set_viewport_size({"width": width, "height": 800})
        found[width] = sticking_out(page)
    choose(page, "lang-zh")
    found["zh"] = sticking_out(page)
    assert {width: what for width, what in found.items() if what} == {}


@only("memory-1", "network-2", "verified-8", "late-512")
def test_twice_the_size_is_still_one_column(browser, report):
    """What 200 % of zoom does to a window of 1280 pixels: half as many, each twice as large."""
    context = browser.new_context(
        viewport={"width": 640, "height": 400}, device_scale_factor=2, java_script_enabled=False, offline=True
    )
    page = context.new_page()
    page.goto(report.as_uri())
    assert sticking_out(page) == []
    page.evaluate("() => { document.documentElement.style.fontSize = '200%'; }")
    assert sticking_out(page) == []
    context.close()


@ORDINARY
def test_a_phone_shows_the_verdict_before_the_controls(show, report):
    page = show(report, width=390, height=844)
    top = "id => document.querySelector(id).getBoundingClientRect().top"
    assert page.evaluate(top, "h1") < 100
    assert page.evaluate(top, "[data-first=todo], .facts") < page.evaluate(top, ".controls")
    assert page.evaluate(top, ".controls") < page.evaluate(top, "#appendix")


@only("network-2", "memory-1")
def test_names_of_hosts_are_whole(show, report):
    broken = """() => [...document.querySelectorAll('h1 bdi, dd bdi')].filter(one => one.checkVisibility()
        && one.getClientRects().length > 1).map(one => one.textContent)"""
    page = show(report, width=1280)
    for width in (1280, 768, 390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(broken) == []
    lines = """() => [...document.querySelectorAll('h1 bdi, dd bdi')].filter(one => one.checkVisibility())
        .map(one => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).fontSize))"""
    assert all(height < 2 for height in page.evaluate(lines))


@only("memory-1", "missing-4096", "late-512")
def test_numbers_of_lines_are_not_clipped(show, report):
    page = show(report, width=320)
    open_all(page)
    clipped = """() => [...document.querySelectorAll('.log .no')].filter(one => {
      const range = document.createRange(); range.selectNodeContents(one);
      const box = range.getBoundingClientRect(), pre = one.closest('pre').getBoundingClientRect();
      return box.width && box.left < pre.left; }).map(one => one.textContent)"""
    assert page.evaluate("() => document.querySelectorAll('.log .no').length") > 0
    assert page.evaluate(clipped) == []


@ORDINARY
def test_labels_of_drawings_do_not_cover_each_other(show, report):
    page = show(report)
    for lang in ("lang-en", "lang-zh"):
        choose(page, lang)
        assert page.evaluate(_COLLIDING) == []


@ORDINARY
def test_the_drawn_story_has_its_first_fault(show, report, doc):
    page = show(report)
    told = page.locator("#timeline .at-fault").count()
    drawn = page.locator("#timeline svg[role=img]").count()
    assert page.locator("#timeline svg .fault").count() >= min(told, drawn)
    assert told or doc["verdict"] != "diagnosed" or not doc.get("incident")


def test_the_file_keeps_to_its_size(report, name):
    size = report.stat().st_size
    assert size <= (5_000_000 if INCIDENTS[name].ranks > 1000 or name.startswith("hostile") else 1_000_000)


class TestTheRulerSees:
    """Pages that do not fit."""

    def test_what_is_wider_than_the_page(self, show, tmp_path):
        path = tmp_path / "page.html"
        path.write_text("<div style='width:2000px'>wide</div>", "utf-8")
        assert sticking_out(show(path)) != []

    def test_what_scrolls_in_a_region_of_its_own(self, show, tmp_path):
        path = tmp_path / "page.html"
        path.write_text("<div style='overflow-x:auto'><div style='width:2000px'>wide</div></div>", "utf-8")
        assert sticking_out(show(path)) == []

    def test_labels_that_collide(self, show, tmp_path):
        path = tmp_path / "page.html"
        path.write_text("<main><svg role=img><text y=20>one</text><text y=22 x=5>two</text></svg></main>", "utf-8")
        assert show(path).evaluate(_COLLIDING) == ["one x two"]
