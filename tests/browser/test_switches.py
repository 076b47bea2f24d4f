"""Language and theme switch without scripts, by pointer and by keyboard, and follow the reader's system."""

from __future__ import annotations

from nccl_triage.render import render

from .incidents import only
from .pages import CJK, choose, open_all, texts

#: Words that both languages share.
SAME = {"rank", "ranks", "Rank"}

_COLOURS = """() => {
  const grey = text => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number); return (r * 3 + g * 6 + b) / 2550; };
  const body = getComputedStyle(document.body);
  return [grey(body.backgroundColor), grey(body.color)];
}"""

#: How many texts are there in one of the languages.
_COUNT = "tag => [...document.querySelectorAll(`.${tag}[lang]`)].filter(e => e.textContent.trim()).length"


def chosen(page, what):
    return page.locator(f"input[name={what}]:checked").get_attribute("id")


def is_dark(page):
    ground, text = page.evaluate(_COLOURS)
    assert abs(ground - text) > 0.6
    return ground < 0.25 and text > 0.7


def test_english_shows_no_chinese_and_chinese_no_english_sentence(show, report, name):
    page = show(report)
    open_all(page)
    assert page.evaluate(_COUNT, "en") == page.evaluate(_COUNT, "zh") > 20
    english = texts(page, "prose")
    assert texts(page, "chinese") == []
    choose(page, "lang-zh")
    assert chosen(page, "lang") == "lang-zh"
    assert page.locator(".en[lang=en]:visible").count() == 0
    translated = texts(page, "translated")
    assert len(translated) > 20
    if name != "hostile-document":
        assert {text for text in translated if not CJK.search(text)} <= SAME
        assert texts(page, "untranslated") == []
    choose(page, "lang-en")
    assert texts(page, "prose") == english


@only("memory-1", "verified-8", "missing-4096")
def test_the_switches_work_by_keyboard(show, report):
    page = show(report)
    for _ in range(1 + page.locator("nav a").count() + 1):
        page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.id") == "lang-en"
    page.keyboard.press("ArrowRight")
    assert chosen(page, "lang") == "lang-zh"
    assert texts(page, "chinese")
    page.keyboard.press("ArrowLeft")
    assert chosen(page, "lang") == "lang-en"
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.id") == "theme-auto"
    page.keyboard.press("ArrowRight")
    assert chosen(page, "theme") == "theme-light"
    page.keyboard.press("ArrowRight")
    assert is_dark(page)


@only("memory-1")
def test_space_chooses_what_is_focused(show, report):
    page = show(report)
    page.locator("#theme-dark").focus()
    assert not is_dark(page)
    page.keyboard.press("Space")
    assert is_dark(page)


@only("memory-1", "verified-8", "healthy-4")
def test_the_theme_follows_the_system_or_the_choice(show, report):
    page = show(report)
    assert not is_dark(page)
    page.emulate_media(color_scheme="dark")
    assert is_dark(page)
    choose(page, "theme-light")
    assert not is_dark(page)
    page.emulate_media(color_scheme="light")
    choose(page, "theme-dark")
    assert is_dark(page)
    choose(page, "theme-auto")
    assert not is_dark(page)


@only("memory-1", "unknown-2")
def test_a_report_in_chinese_opens_in_chinese(show, doc, tmp_path):
    path = tmp_path / "zh.html"
    path.write_bytes(render(doc, "html", lang="zh"))
    page = show(path)
    assert page.locator("html").get_attribute("lang") == "zh-Hans"
    assert chosen(page, "lang") == "lang-zh"
    assert CJK.search(page.locator("h1").inner_text())
    assert CJK.search(page.title())
    choose(page, "lang-en")
    assert texts(page, "chinese") == []


@only("memory-1")
def test_the_script_keeps_title_and_language_in_step_and_nothing_needs_it(show, report, doc):
    for scripts in (True, False):
        page = show(report, scripts=scripts)
        open_all(page)
        choose(page, "lang-zh")
        assert (page.locator("html").get_attribute("lang") == "zh-Hans") == scripts
        assert bool(CJK.search(page.title())) == scripts
        assert page.locator("button.copy:visible").count() == (page.locator("button.copy").count() if scripts else 0)
        assert page.locator("h1 .zh:visible").count() == 1


@only("network-2")
def test_a_button_copies_its_command(show, report):
    page = show(report, scripts=True)
    page.evaluate(
        "() => { navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }; }"
    )
    button = page.locator(".todo button.copy").first
    button.click()
    page.wait_for_function("() => document.querySelector('.todo button.copy.done')")
    code = page.locator(".todo .cmd code").first
    assert page.evaluate("() => window.copied") == code.text_content().strip()
    assert button.inner_text() == "copied"


class TestTheCheckersSee:
    """What the checks above would say of a page that is not translated."""

    def test_an_english_sentence(self, show, tmp_path):
        path = tmp_path / "page.html"
        path.write_text(
            "<html lang=zh><p>这里 link</p><p>The link was down</p><code>a b c d</code><p>rank 3</p>", "utf-8"
        )
        assert texts(show(path), "untranslated") == ["The link was down"]

    def test_a_chinese_word(self, show, tmp_path):
        path = tmp_path / "page.html"
        path.write_text("<html lang=en><p>fine</p><p>原因</p><p hidden>隐藏</p>", "utf-8")
        assert texts(show(path), "chinese") == ["原因"]
