from __future__ import annotations

import base64
import hashlib
import html as entities
import itertools
import re
from html.parser import HTMLParser

import pytest

from nccl_triage import resources
from nccl_triage.render import html
from nccl_triage.render import page as page_module

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
    script = f"script-src '{html.copy_hash()}'"
    assert policy == [f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; {script}"]
    assert page.all("script") == [{}]


def test_the_only_script_is_the_one_that_the_policy_names():
    scripts = re.findall(r"<script>(.*?)</script>", html.render(hostile(), "en"), re.S)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert html.copy_hash() == f"sha256-{digest}"
    assert scripts == re.findall(r"<script>(.*?)</script>", html.render(healthy(), "zh"), re.S)


def test_commands_have_a_button_that_only_the_script_shows():
    text = html.render(full(), "en")
    buttons = Page(text).all("button")
    assert len(buttons) == text.count('<div class="cmd">') > 3
    assert all("hidden" in attrs and attrs["type"] == "button" for attrs in buttons)


def test_a_remark_of_a_fix_is_no_command():
    doc = diagnosed()
    doc["diagnoses"][0]["fixes"] = [
        {**doc["diagnoses"][0]["fixes"][0], "env": {}, "commands": ["# look at it", "#SBATCH --mem=0"]}
    ]
    top = section(html.render(doc, "en"), "summary")
    assert re.findall(r"<pre class=\"wrap\"><code>(.*?)\n</code>", top) == ["#SBATCH <bdi>--mem=0</bdi>"]
    assert '<p class="soft"><code># look at it</code></p>' in top


def test_the_title_and_the_language_follow_the_choice():
    doc = diagnosed()
    for lang, shown in (("en", doc["headline"]), ("zh", doc["headline_zh"])):
        title = re.search(r'<title data-en="([^"]*)" data-zh="([^"]*)">([^<]*)</title>', html.render(doc, lang))
        assert title is not None
        told = [entities.unescape(one) for one in title.groups()]
        assert told == [f"nccl-triage: {one}" for one in (doc["headline"], doc["headline_zh"], shown)]


def test_names_of_hosts_are_not_broken_at_a_hyphen():
    assert page_module.whole("gpu-a and <b>-x 1-2") == "<bdi>gpu-a</bdi> and &lt;b&gt;-x 1-2"
    assert page_module.whole("on gpu-node-01.example.com, rank 3") == "on <bdi>gpu-node-01.example.com</bdi>, rank 3"
    assert page_module.command("cp -a LOGS evidence/") == "cp <bdi>-a</bdi> LOGS evidence/"


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
    assert not [attrs for _, attrs in page.elements if attrs.get("role") == "region"]


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
        "rank 2 on <bdi>node-a</bdi>",
        "<bdi>micro-batch</bdi>",
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


def test_what_says_the_same_is_one_item_and_counted():
    doc = diagnosed()
    best = doc["diagnoses"][0]
    best["evidence"].append({**best["evidence"][0], "line": 1190})
    text = section(html.render(doc, "en"), "evidence")
    text = text[: text.index("<h3>")]
    assert text.count('class="item"') == 2
    assert text.count("The first error of the job") == 1
    assert text.count('<details class="fold">') == 1 and "1 more line that shows it" in text


def test_a_line_that_the_windows_mark_is_quoted_nowhere_else():
    doc = full()
    text = html.render(doc, "en")
    main = text[text.index("<body>") : text.index('<section id="appendix"')]
    main = re.sub(r'<details class="(twin|fold)">.*?</details>', "", main, flags=re.S)
    line = doc["diagnoses"][0]["evidence"][0]["text"]
    assert plain(main).count(line) == 1
    assert section(text, "evidence").count("<mark>") >= 1


def test_each_line_of_an_excerpt_is_shown_once():
    text = html.render(full(), "en")
    shown = re.findall(r'class="row[^"]*" id="(L\d+-\d+)"', text)
    assert len(shown) == len(set(shown)) == sum(len(e["lines"]) for e in full()["excerpts"])
    beside = re.findall(r'class="row[^"]*" id="(L\d+-\d+)"', section(text, "evidence"))
    assert 3 <= len(beside) <= page_module.NEAR_ROWS


def test_unknown_and_healthy_have_their_own_summary():
    text = html.render(unknown(), "en")
    top = section(text, "summary")
    assert "does not establish a cause" in top
    assert "Does rank 2 fail again with half the" in top  # the check that tells the causes apart is what to do now
    assert len(re.findall('class="item rival"', section(text, "rivals"))) == 3
    calm = html.render(healthy(), "en")
    assert "12,345" in calm
    assert 'id="verification"' not in calm
    assert 'id="evidence"' not in calm


def test_hostile_text_is_inert():
    text = html.render(hostile(), "en")
    page = Page(text)
    assert text.lower().count("<script") == 1
    assert "<img" not in text.lower()
    assert not any(str(a.get("href")).startswith("javascript") for a in page.all("a"))
    assert "{{ 7*7 }} {% raw %}" in text
    assert all(c in "\n\t" or c.isprintable() for c in text)
    assert "<script>alert" not in text
    assert "<script>alert(1)</script>" in "".join(page.text)
    assert text.index("<script>") > text.index("</footer>")
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
    used = {"report.html.jinja", "history.html.jinja", "jobs.html.jinja"}
    for name in names:
        used |= set(
            re.findall(r'"(_\w+\.\w+\.jinja)"', (resources.reports_dir() / "templates" / name).read_text("utf-8"))
        )
    assert names == used


def section(text: str, name: str) -> str:
    start = text.index(f'<section id="{name}"')
    return text[start : text.index("</section>", start)]


def folded(text: str, name: str) -> str:
    """Return a part of the appendix."""
    start = text.index(f'<details id="{name}"')
    return text[start : text.index("<details id=", start + 1) if "<details id=" in text[start + 1 :] else None]


def plain(markup: str) -> str:
    """Return the text of a piece of the page."""
    return entities.unescape(re.sub(r"<[^>]+>", "", markup))


def test_the_first_screen_answers_what_who_when_cost_and_what_now():
    doc = full()
    doc["restart"] = {"decision": "exclude_then_restart", "exclude": ["node-a"], "why": "Broken.", "why_zh": "坏了。"}
    doc["outcome"] = {
        "state": "failed",
        "since": None,
        "says": "The job failed.",
        "says_zh": "作业失败。",
        "line": None,
    }
    doc["job"] |= {"scheduler": "slurm", "id": "81234", "cluster": "alps"}
    text = section(html.render(doc, "en"), "summary")
    told = dict(re.findall(r'data-first="(\w+)"[^>]*>(.*?)</(?:dd|h1|div|p)>', text, re.DOTALL))
    assert set(told) == {
        "what", "job", "cause", "confidence", "culprit", "outcome", "cost", "restart", "verified", "todo"
    }  # fmt: skip
    assert "2024-08-23 21:10:26" in told["outcome"]
    assert "11 min 14 s on 8 ranks: 1.5 rank-hours lost" in plain(told["cost"])
    assert "8 个 rank 持续 11 分钟 14 秒" in told["cost"]
    assert "Restart without node-a" in plain(told["restart"]) and "排除 node-a 后重启" in plain(told["restart"])
    for part in ("Slurm", "job 81234", "cluster alps", "8 ranks", "on node-a, node-b", "torchrun", "PyTorch 2.5.1"):
        assert part in plain(told["job"])


def test_work_since_the_last_checkpoint_is_the_cost_where_it_is_known():
    doc = full()
    doc["incident"] |= {"checkpoint_seconds": 1800.0, "gpu_hours": 4.0}
    text = plain(section(html.render(doc, "en"), "summary"))
    assert "4.0 GPU-hours since the last checkpoint (30 min on 8 ranks)" in text
    assert "rank-hours" not in text


def test_what_no_line_tells_takes_no_room():
    text = section(html.render(diagnosed(), "en"), "summary")
    assert 'data-first="cost"' not in text and 'data-first="restart"' not in text
    assert "not known" not in text


def test_nothing_to_do_is_told_twice():
    text = html.render(full(), "en")
    titles = [plain(one) for one in re.findall(r"<h[1-5][^>]*>(.*?)</h[1-5]>", text, re.S)]
    assert sum(title.startswith("What to do now") for title in titles) == 1
    fix = full()["diagnoses"][0]["fixes"][0]
    assert plain(text).count(fix["title"]) == 1
    for command in fix["commands"]:
        assert plain(text).count(command) == 1


def test_a_collective_without_a_name_is_told_by_its_number():
    doc = full()
    doc["collective"] = {"op": "", "seq": 25059, "timeout_ms": 600000}
    text = plain(section(html.render(doc, "en"), "timeline"))
    assert "number 25059, timeout 10 min" in text and "Collective: ," not in text
    doc["collective"] = {"op": None, "seq": None}
    assert "Collective" not in plain(section(html.render(doc, "en"), "timeline"))


def test_the_column_of_line_numbers_is_as_wide_as_they_are():
    doc = full()
    doc["excerpts"] = [{"path": "logs/trainer.log", "first_line": 12345678, "lines": ["x"], "marks": []}]
    assert '<pre class="log" style="--digits:8"' in html.render(doc, "en")
    style = (resources.reports_dir() / "templates" / "_style.css.jinja").read_text("utf-8")
    assert "width:calc((var(--digits) + 4) * 1ch)" in style


def test_the_story_goes_from_the_last_progress_to_the_end():
    text = section(html.render(full(), "en"), "timeline")
    steps = re.findall(r"<strong><span class=\"en\" lang=\"en\">([^<]+)</span>", text)
    assert steps[:5] == [
        "Last progress", "First fault", "A rank begins to wait", "First consequence", "Last line of the failure"
    ]  # fmt: skip
    assert "Clocks of different hosts may differ" in text
    assert text.count('class="wait"') == 7 + 1  # one a rank that waited, one in the legend
    assert 'class="link"' in text
    assert "Without a time of their own, in the order of the log (1)" in text


def test_advice_stands_by_urgency():
    text = section(html.render(full(), "en"), "advice").replace("<bdi>", "").replace("</bdi>", "")
    places = [text.index(word) for word in ("next 5 minutes", "next 15 minutes", "Long term")]
    assert places == sorted(places)
    assert text.count('class="stage"') == 3
    assert "py-spy dump --pid 1" in text


def test_networks_are_drawn_where_the_cause_is_one_of_the_network():
    doc = full()
    assert 'id="network"' not in html.render(doc, "en")
    doc["diagnoses"][0]["family"] = "network"
    text = section(html.render(doc, "en"), "network")
    assert text.count('class="net"') == 2 and text.count('class="broken"') == 1
    assert "10.9.9.9" in text and "container bridge" in text and "+19" not in text
    assert 'id="network"' not in html.render(unknown() | {"network": {"networks": []}}, "en")
    maybe = html.render(unknown() | {"network": doc["network"]}, "en")
    assert 'id="network"' in maybe


def test_curves_show_every_series_and_where_it_stops_being_a_number():
    text = section(html.render(full(), "en"), "curves")
    assert text.count('class="curve') == 3 + 2  # a line a series, and the legend of two ranks
    assert "30: nan" in text
    assert text.count("<tr>") == 1 + 3


def test_nothing_shows_who_talks_to_whom():
    text = html.render(full(), "en")
    assert 'id="peers"' not in text and "Who talks to whom" not in text
    told = folded(text, "environment")
    assert "P2P/CUMEM 1, NET/IB 1, SHM/direct 1, carrier pigeon 1" in told


def test_what_was_not_seen_says_how_to_have_it():
    text = folded(html.render(full(), "en"), "not-seen")
    assert "export NCCL_DEBUG=INFO" in text and "dmesg <bdi>-T</bdi>" in text and "NCCL 自己的报告" in text


def test_a_remark_stands_beside_its_variable():
    doc = full()
    doc["job"]["env"] = {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"}
    text = folded(html.render(doc, "en"), "environment")
    assert text.count("Fine.") == 1


def test_the_appendix_is_folded():
    text = html.render(full(), "en")
    parts = re.findall(r'<details id="([\w-]+)"([^>]*)>', section(text, "appendix"))
    assert [name for name, _ in parts] == [
        "repairs", "excerpts", "rival-evidence", "not-seen", "environment", "symptoms", "inputs", "method"
    ]  # fmt: skip
    assert not any("open" in attributes for _, attributes in parts)
