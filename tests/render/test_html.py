from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

import pytest

from nccl_triage import resources
from nccl_triage.render import html

from .documents import ALL, diagnosed, full, healthy, hostile, large, unknown

VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """Collects the elements and checks that they are nested properly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert len(attrs) == len({name for name, _ in attrs}), tag
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(params=sorted(ALL))
def page(request):
    return Page(html.render(ALL[request.param](), "en"))


def test_nothing_is_requested_and_nothing_runs(page):
    names = {tag for tag, _ in page.elements}
    assert not names & {
        "script",
        "iframe",
        "object",
        "embed",
        "link",
        "img",
        "base",
        "form",
        "audio",
        "video",
    }
    for tag, attrs in page.elements:
        assert not any(name.startswith("on") for name in attrs), tag
        assert "src" not in attrs
        target = attrs.get("href")
        if target is not None:
            assert tag == "a"
            assert target.startswith("#") or (target.startswith("http") and "noreferrer" in str(attrs["rel"]))
    policy = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_the_style_loads_nothing():
    style = re.search(r"<style>(.*?)</style>", html.render(diagnosed(), "en"), re.S)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_ids_are_unique_and_links_lead_somewhere(page):
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for attrs in page.all("a"):
        if str(attrs["href"]).startswith("#"):
            assert str(attrs["href"])[1:] in ids
    for svg in page.all("svg"):
        for reference in str(svg.get("aria-labelledby") or "").split():
            assert reference in ids


def test_structure_for_screen_readers(page):
    names = [tag for tag, _ in page.elements]
    assert page.all("html")[0]["lang"] == "en"
    for landmark in ("header", "main", "nav", "footer", "h1", "title"):
        assert landmark in names
    assert names.count("main") == names.count("h1") == 1
    levels = [int(tag[1]) for tag in names if re.fullmatch(r"h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(th.get("scope") in ("col", "row") for th in page.all("th"))
    assert names.count("caption") == names.count("table")
    for attrs in page.all("svg"):
        assert (attrs.get("role") == "img") != (attrs.get("aria-hidden") == "true")
    assert {attrs["type"] for attrs in page.all("input")} == {"radio"}


def test_charts_have_titles_and_table_twins():
    text = html.render(diagnosed(), "en")
    for chart in ("timeline", "ranks"):
        section = text[text.index(f'<section id="{chart}"') :]
        section = section[: section.index("</section>")]
        assert f'<title id="{chart}-title">' in section
        assert f'<desc id="{chart}-desc">' in section
        assert '<details class="twin"><summary>' in section
        assert "<table" in section


@pytest.mark.parametrize(("lang", "tag", "checked"), [("en", "en", "lang-en"), ("zh", "zh-Hans", "lang-zh")])
def test_both_languages_in_one_file(lang, tag, checked):
    text = html.render(diagnosed(), lang)
    page = Page(text)
    assert page.all("html")[0]["lang"] == tag
    assert [attrs["id"] for attrs in page.all("input") if "checked" in attrs] == [checked, "theme-auto"]
    assert '<span class="en" lang="en">A GPU ran out of memory</span>' in text
    assert '<span class="zh" lang="zh-Hans">GPU 显存耗尽</span>' in text
    assert text.count('class="en" lang="en"') == text.count('class="zh" lang="zh-Hans"')


def test_the_summary_says_what_to_do_and_that_nothing_was_verified():
    text = html.render(diagnosed(), "en")
    top = text[text.index('<section id="summary"') : text.index("</section>")]
    for part in (
        "gpu-out-of-memory",
        "0.93",
        "established",
        "rank 2 on node-a",
        "micro-batch",
        "not verified",
    ):
        assert part in top
    assert "not verified" in top.lower()
    assert '<a href="https://pytorch.org/docs/stable/notes/cuda.html" rel="noreferrer noopener">' in text


def test_evidence_links_to_the_marked_line_of_the_log():
    text = html.render(diagnosed(), "en")
    assert '<a class="at" href="#L0-1182"><code>logs/trainer.log:1182</code></a>' in text
    assert 'class="row hit" id="L0-1182"' in text
    assert '<code class="at">logs/trainer.log:900</code>' in text


def test_neighbours_that_say_the_same_are_one_item():
    doc = diagnosed()
    best = doc["diagnoses"][0]
    best["evidence"].insert(1, {**best["evidence"][0], "line": 1183})
    text = html.render(doc, "en")
    section = text[text.index('<section id="evidence"') :]
    section = section[: section.index("<h3>")]
    assert section.count('class="item"') == 2
    assert section.count("The first error of the job") == 1


def test_unknown_and_healthy_have_their_own_summary():
    text = html.render(unknown(), "en")
    assert "does not establish a cause" in text
    assert text.count("<h4>") == 2
    calm = html.render(healthy(), "en")
    assert "12,345" in calm
    assert 'id="verification"' not in calm
    assert 'id="evidence"' not in calm


def test_hostile_text_is_inert():
    text = html.render(hostile(), "en")
    page = Page(text)
    assert "<script" not in text.lower()
    assert "<img" not in text.lower()
    assert not any(str(a.get("href")).startswith("javascript") for a in page.all("a"))
    assert "{{ 7*7 }} {% raw %}" in text
    assert all(c in "\n\t" or c.isprintable() for c in text)
    assert "<script>alert(1)</script>" in "".join(page.text)
    assert len(text) < 1_000_000


def test_output_is_deterministic():
    assert html.render(large(), "zh") == html.render(large(), "zh")


@pytest.mark.parametrize("ranks", [8, 64, 512, 4096])
def test_ordinary_incidents_stay_below_a_megabyte(ranks):
    text = html.render(large(ranks) if ranks > 8 else diagnosed(), "en")
    assert len(text.encode()) < html.WANTED
    Page(text)


def monster() -> dict:
    doc = large(4096)
    wide = "<&\"'\x00" * 1000
    best = doc["diagnoses"][0]
    best["evidence"] = [{**best["evidence"][0], "line": i + 1, "text": wide, "says": wide} for i in range(500)]
    best["contributions"] = [{**best["contributions"][0], "says": wide} for _ in range(500)]
    best["fixes"] = [{**best["fixes"][0], "title": wide, "commands": [wide] * 50} for _ in range(50)]
    best["culprits"] *= 500
    doc["diagnoses"] = [{**best, "explanation": wide * 10} for _ in range(9)]
    doc["excerpts"] = [{"path": wide, "first_line": i * 50 + 1, "lines": [wide] * 50, "marks": []} for i in range(99)]
    doc["timeline"] = [{**e, "text": wide, "signature": wide} for e in doc["timeline"]] * 5
    doc["job"]["env"] = {f"{i}{wide}": [wide] * 9 for i in range(600)}
    doc["job"]["hosts"] = [{"name": wide, "addresses": [wide] * 30, "ranks": [i]} for i in range(600)]
    doc["job"]["ranks"] = [{**r, "exit": f"{r['rank']}{wide}"} for r in doc["job"]["ranks"]]
    doc["symptoms"] = [{**doc["symptoms"][0], "meaning": wide} for _ in range(600)]
    doc["inputs"] = [{"path": wide, "bytes": 1, "lines": 1, "problems": [wide] * 30} for _ in range(600)]
    doc["notes"] = doc["notes_zh"] = [wide] * 600
    return doc


def test_no_document_exceeds_the_hard_cap_and_the_cut_is_told():
    text = html.render(monster(), "en")
    assert len(text.encode()) < html.HARD_CAP
    for what in ("Evidence", "Inputs and notes", "Symptoms", "Timeline", "Hosts", "Environment"):
        assert re.search(rf"{what}: \d+ of \d+ shown; all in the JSON", text), what
    Page(text)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, two: str) -> float:
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_in_both_themes():
    style = (resources.reports_dir() / "templates" / "_style.css.jinja").read_text("utf-8")
    themes = re.findall(r"^--page.*$", style, re.M)
    assert len(themes) == 2
    for theme in themes:
        colour = dict(re.findall(r"--(\w+):(#\w{6})", theme))
        for text in ("text", "soft", "blue", "orange"):
            for ground in ("page", "panel", "code"):
                assert contrast(colour[text], colour[ground]) >= 4.5, (text, ground)
        assert contrast(colour["text"], colour["mark"]) >= 4.5
        assert contrast(colour["orange"], colour["mark"]) >= 4.5
        assert contrast(colour["text"], colour["cell"]) >= 4.5
        assert contrast(colour["text"], colour["cellmark"]) >= 4.5
        assert contrast(colour["orange"], colour["cellmark"]) >= 3
        assert contrast(colour["quiet"], colour["panel"]) >= 3


def test_no_template_is_left_over_and_all_lie_where_the_wheel_takes_them():
    names = {path.name for path in (resources.reports_dir() / "templates").iterdir()}
    used = {"report.html.jinja", "history.html.jinja"}
    for name in names:
        used |= set(
            re.findall(r'"(_\w+\.\w+\.jinja)"', (resources.reports_dir() / "templates" / name).read_text("utf-8"))
        )
    assert names == used


def section(text: str, name: str) -> str:
    start = text.index(f'<section id="{name}"')
    return text[start : text.index("</section>", start)]


def test_the_first_screen_answers_what_who_when_cost_and_what_now():
    text = section(html.render(full(), "en"), "summary")
    told = dict(re.findall(r'data-first="(\w+)"[^>]*>(.*?)</(?:dd|h1|div)>', text, re.DOTALL))
    assert set(told) == {"what", "cause", "confidence", "culprit", "when", "cost", "verified", "todo"}
    assert "2024-08-23 21:10:26" in told["when"]
    assert "11 min 14 s on 8 ranks: 1.5 rank-hours lost" in told["cost"]
    assert "8 个 rank 持续 11 分钟 14 秒" in told["cost"]


def test_what_no_line_tells_is_said_to_be_unknown():
    text = section(html.render(diagnosed(), "en"), "summary")
    assert "unknown" in text and "too few lines have a timestamp" in text


def test_the_story_goes_from_the_last_progress_to_the_end():
    text = section(html.render(full(), "en"), "timeline")
    steps = re.findall(r"<strong><span class=\"en\" lang=\"en\">([^<]+)</span>", text)
    assert steps[:5] == [
        "Last progress", "First fault", "A rank begins to wait", "First consequence", "Last line of the failure"
    ]  # fmt: skip
    assert "Clocks of different hosts may differ" in text
    assert text.count('class="wait"') == 7 + 1  # one a rank that waited, one in the legend
    assert 'class="link"' in text


def test_advice_stands_by_urgency():
    text = section(html.render(full(), "en"), "advice")
    places = [text.index(word) for word in ("next 5 minutes", "next 15 minutes", "Long term")]
    assert places == sorted(places)
    assert text.count('class="stage"') == 3
    assert "py-spy dump --pid 1" in text


def test_networks_are_drawn_where_they_matter_and_only_there():
    text = section(html.render(full(), "en"), "network")
    assert text.count('class="net"') == 2 and text.count('class="broken"') == 1
    assert "10.9.9.9" in text and "container bridge" in text and "+19" not in text
    doc = full()
    doc["network"]["failed"] = []
    assert 'id="network"' not in html.render(doc, "en")
    doc["diagnoses"][1]["family"] = "network"
    assert 'id="network"' in html.render(doc, "en")


def test_curves_show_every_series_and_where_it_stops_being_a_number():
    text = section(html.render(full(), "en"), "curves")
    assert text.count('class="curve') == 3 + 2  # a line a series, and the legend of two ranks
    assert "30: nan" in text
    assert text.count("<tr>") == 1 + 3


def test_the_square_of_connections_has_a_table_twin():
    text = section(html.render(full(), "en"), "peers")
    assert len(re.findall('class="t-', text)) == 4 * 2
    assert "carrier pigeon" in text and "P2P/CUMEM" in text


def test_what_was_not_seen_says_how_to_have_it():
    text = section(html.render(full(), "en"), "not-seen")
    assert "export NCCL_DEBUG=INFO" in text and "dmesg -T" in text and "NCCL 自己的报告" in text


def test_a_remark_stands_beside_its_variable():
    doc = full()
    doc["job"]["env"] = {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"}
    text = section(html.render(doc, "en"), "environment")
    assert text.count("Fine.") == 1
