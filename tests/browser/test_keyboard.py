"""Everything can be reached and used with the keyboard alone, in the order of the page, and focus is seen."""

from __future__ import annotations

import pytest

from .incidents import only

#: Number what Tab should reach, in the order of the page, and return how many there are.
_NUMBER = """() => {
  const groups = new Set(); let count = 0;
  for (const one of document.querySelectorAll('a[href], summary, input, button, select, textarea, [tabindex]')) {
    if (!one.checkVisibility({visibilityProperty: true, contentVisibilityAuto: true}) || one.tabIndex < 0) continue;
    if (one.type === 'radio') {
      if (!one.checked && document.querySelector(`input[name=${one.name}]:checked`)) continue;
      if (groups.has(one.name)) continue;
      groups.add(one.name);
    }
    one.dataset.step = ++count;
  }
  return count;
}"""

#: Where focus is, whether that is in the window, and whether anything is drawn around it.
_FOCUS = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const box = (one.closest('label') || one).getBoundingClientRect();
  const drawn = at => { const s = getComputedStyle(at);
    return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1.5 || s.boxShadow !== 'none'; };
  return {step: +one.dataset.step || 0, name: `${one.tagName}#${one.id}.${one.className}`,
    seen: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    drawn: drawn(one) || !!one.closest('label') && drawn(one.closest('label'))};
}"""

#: A walk longer than this proves nothing more.
STEPS = 120


def walk(page, most=STEPS):
    """Press Tab until focus leaves the page or begins again, and return where it was."""
    found = []
    for _ in range(most):
        page.keyboard.press("Tab")
        focus = page.evaluate(_FOCUS)
        if focus is None or (found and focus == found[0]):
            break
        found.append(focus)
    return found


@only("memory-1", "mismatch-8", "verified-8", "healthy-4", "missing-4096")
def test_tab_reaches_everything_in_the_order_of_the_page(show, report):
    page = show(report)
    expected = page.evaluate(_NUMBER)
    met = walk(page)
    assert [focus["name"] for focus in met if not focus["step"]] == []
    assert [focus["step"] for focus in met] == list(range(1, min(expected, STEPS) + 1))
    assert [focus["name"] for focus in met if not focus["seen"]] == []
    assert [focus["name"] for focus in met if not focus["drawn"]] == []
    assert page.locator("[tabindex]:not([tabindex='0']):not([tabindex='-1'])").count() == 0


@only("memory-1", "verified-8")
def test_tab_goes_back_the_same_way(show, report):
    page = show(report)
    page.evaluate(_NUMBER)
    for _ in range(9):
        page.keyboard.press("Tab")
    back = []
    for _ in range(8):
        page.keyboard.press("Shift+Tab")
        back.append(page.evaluate(_FOCUS)["step"])
    assert back == [8, 7, 6, 5, 4, 3, 2, 1]


@only("memory-1", "verified-8")
def test_the_skip_link_leads_past_the_header(show, report):
    page = show(report)
    page.keyboard.press("Tab")
    assert page.evaluate(_FOCUS)["seen"]
    assert page.evaluate("() => document.activeElement.matches('a[href^=\"#\"]')")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("() => !!document.activeElement.closest('main')")


@only("memory-1", "verified-8")
@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_what_folds_opens_and_closes(show, report, key):
    page = show(report)
    folds = page.locator("details:not([open]) > summary:visible")
    assert folds.count() >= 2
    summary = folds.nth(1).element_handle()
    is_open = "summary => summary.parentElement.open"
    summary.focus()
    assert not summary.evaluate(is_open)
    page.keyboard.press(key)
    assert summary.evaluate(is_open)
    summary.evaluate_handle("summary => summary.nextElementSibling").as_element().wait_for_element_state("visible")
    page.keyboard.press(key)
    assert not summary.evaluate(is_open)


@only("mismatch-8", "verified-8")
def test_a_link_to_a_line_of_the_log_shows_it(show, report):
    page = show(report)
    link = page.locator("main a[href^='#']:has(code):visible").first
    target = link.get_attribute("href")
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(50)
    box = page.locator(f"[id='{target[1:]}']").bounding_box()
    assert box is not None
    assert -1 <= box["y"] <= 800


class TestTheWalkSees:
    """Pages on which the walk must not succeed."""

    def test_a_focus_that_is_not_drawn(self, show, tmp_path):
        path = tmp_path / "page.html"
        path.write_text("<style>a:focus{outline:0}</style><a href='#x'>one</a>", "utf-8")
        assert [focus["drawn"] for focus in walk(show(path))] == [False]

    def test_an_order_that_is_not_the_pages(self, show, tmp_path):
        path = tmp_path / "page.html"
        path.write_text("<a href='#x'>one</a><a href='#x' tabindex=1>two</a>", "utf-8")
        page = show(path)
        page.evaluate(_NUMBER)
        assert [focus["step"] for focus in walk(page)] == [2, 1]
