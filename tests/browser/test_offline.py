"""A report asks the network for nothing, runs nothing and breaks no rule of its own policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.render import html

from .incidents import ATTACKS
from .pages import Watch, open_all, texts

POLICY = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src '{html.copy_hash()}'"
#: Elements that could load or run something: a report has none of them but its own script.
ACTIVE = "script[src], body > script:not(:last-child), :not(body) > script, iframe, object, embed, link, img, base, form, audio, video, source, [srcset], foreignObject"


@pytest.fixture
def watched(tabs: dict[bool, Any]) -> Iterator[Callable[[Path], tuple[Any, Watch]]]:
    """Return what opens a file with scripts allowed and notes from the start what it does."""
    page = tabs[True]
    watch = Watch(page)

    def opened(path: Path) -> tuple[Any, Watch]:
        page.emulate_media(media="screen", color_scheme="light")
        page.goto(path.as_uri())
        page.wait_for_timeout(50)
        return page, watch

    yield opened
    page.goto("about:blank")
    watch.leave(page)


def test_nothing_is_requested_and_nothing_complains(watched, report):
    page, watch = watched(report)
    open_all(page)
    page.emulate_media(color_scheme="dark")
    page.emulate_media(media="print")
    assert watch.requests == [report.as_uri()]
    assert watch.complaints == []


def test_nothing_in_the_page_can_load_or_run(show, report):
    page = show(report)
    policy = page.locator("meta[http-equiv=Content-Security-Policy]")
    assert policy.get_attribute("content") == POLICY
    assert page.locator(ACTIVE).count() == 0
    handlers = (
        "() => [...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames()).filter(n => /^on/.test(n))"
    )
    assert page.evaluate(handlers) == []
    addresses = page.evaluate("() => [...document.querySelectorAll('[href], [src]')].map(e => e.getAttribute('href'))")
    assert [a for a in addresses if not (a or "").startswith(("#", "https://", "http://"))] == []


def test_links_within_the_page_lead_somewhere(show, report):
    page = show(report)
    lost = "() => [...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.hash.slice(1)).filter(id => !document.getElementById(decodeURIComponent(id)))"
    assert page.evaluate(lost) == []
    twice = "() => { const ids = [...document.querySelectorAll('[id]')].map(e => e.id); return ids.filter((id, i) => ids.indexOf(id) !== i); }"
    assert page.evaluate(twice) == []


@pytest.mark.parametrize("name", ["hostile-log", "hostile-document"], indirect=True)
def test_attacks_stay_text(watched, report):
    page, watch = watched(report)
    assert page.evaluate("() => window.pwned") is None
    assert watch.complaints == []
    assert page.evaluate("() => document.body.parentElement.children.length") == 2
    assert page.locator("main").count() == 1
    assert page.url == report.as_uri()
    open_all(page)
    shown = " ".join(texts(page))
    assert "<script>" in shown
    assert "7*7" in shown
    assert "49" not in shown.split("7*7")[1][:4]
    assert not set(shown) & set("\x00\x08\x0b\x1b\x7f\x9b\u202e\u2066\u200f\u061c")


def test_an_attack_can_be_seen_in_every_form(watched, reports):
    """The hostile log really brings its attacks into the report: else the tests above would prove nothing."""
    page, _ = watched(reports("hostile-log")[0])
    open_all(page)
    shown = " ".join(texts(page))
    told = [attack for attack in ATTACKS if attack.isprintable() and attack.split()[0] in shown]
    assert len(told) >= 6, told


class TestTheWatcherSees:
    """Pages that do what a report must not, so that silence above means something."""

    @pytest.fixture
    def altered(self, reports, tmp_path):
        text = reports("memory-1")[0].read_text("utf-8")

        def made(piece: str, *, policy: bool = True) -> Path:
            page = tmp_path / "altered.html"
            kept = text if policy else text.replace("Content-Security-Policy", "x-none")
            page.write_text(kept.replace("<main", piece + "<main", 1), "utf-8")
            return page

        return made

    @pytest.mark.parametrize(
        "piece",
        ["<script>window.pwned=1</script>", '<p onclick="1" id=c>x</p><svg onload="window.pwned=1"></svg>'],
    )
    def test_a_script_that_the_policy_stops(self, watched, altered, piece):
        page, watch = watched(altered(piece))
        assert any("Content Security Policy" in complaint for complaint in watch.complaints)
        assert page.evaluate("() => window.pwned") is None

    def test_a_picture_from_elsewhere(self, watched, altered):
        _, watch = watched(altered('<img src="https://example.invalid/x.png" alt="">'))
        assert any("Content Security Policy" in complaint for complaint in watch.complaints)

    def test_a_script_and_a_request_without_the_policy(self, watched, altered):
        piece = '<script>window.pwned=1</script><img src="https://example.invalid/x.png" alt="">'
        page, watch = watched(altered(piece, policy=False))
        assert page.evaluate("() => window.pwned") == 1
        assert "https://example.invalid/x.png" in watch.requests

    def test_an_error_thrown(self, watched, altered):
        _, watch = watched(altered("<script>throw new Error('thrown')</script>", policy=False))
        assert any("thrown" in complaint for complaint in watch.complaints)
