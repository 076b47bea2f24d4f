"""The report as one HTML file that works offline, without scripts, on paper and in both languages.

Every value that a template prints goes through ``visible`` and autoescape. What does not fit the size is cut
here, and the report says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from nccl_triage import resources
from nccl_triage.render import rank_grid, shapes, timeline_chart, verification_html
from nccl_triage.render.view import View
from nccl_triage.render.words import (
    WORDS,
    Document,
    Lang,
    Pair,
    confidence,
    consequence_phrase,
    culprit_name,
    pick,
    place,
    rank_ranges,
    visible,
    word,
)

#: A report should stay below the first number of bytes and never exceeds the second.
WANTED, HARD_CAP = 1_000_000, 5_000_000


@dataclass(frozen=True)
class Limits:
    """How much of the document one attempt puts into the page."""

    text: int = 2000
    rows: int = 400
    timeline: int = 200
    evidence: int = 20
    excerpt_lines: int = 1500
    ranks: int = rank_grid.MAX_RANKS


#: Tried one after the other until the page is small enough; the last fits the hard cap whatever the document.
ATTEMPTS = (
    Limits(),
    Limits(text=600, rows=200, timeline=120, evidence=10, excerpt_lines=400, ranks=1024),
    Limits(text=160, rows=40, timeline=60, evidence=4, excerpt_lines=80, ranks=256),
)


def both(pair: Sequence[str]) -> Markup:
    """Return a text in both languages, of which the style sheet shows one."""
    en, zh = visible(pair[0]), visible(pair[1])
    if en == zh:
        return escape(en)
    spans = '<span class="en" lang="en">{}</span><span class="zh" lang="zh-Hans">{}</span>'
    return Markup(spans).format(en, zh)


def say(key: object, **values: object) -> Markup:
    """Return an interface word in both languages."""
    pair = WORDS.get(str(key), Pair(str(key), str(key)))
    return both([text.format(**values) if values else text for text in pair])


def prose(item: Mapping[str, Any], key: str) -> Markup:
    """Return one of the document's texts for people in both languages."""
    return both((pick(item, key, "en"), pick(item, key, "zh")))


def _phrase(function: Any, item: Any) -> Markup:
    return both((function(item, "en"), function(item, "zh")))


def reference(url: object) -> Markup:
    """Return a link to documentation; anything but a plain web address stays text."""
    text = visible(url, 500)
    if not text.startswith(("https://", "http://")) or set(text) & set(" \"'<>\\"):
        return Markup("<code>{}</code>").format(text)
    return Markup('<a href="{0}" rel="noreferrer noopener">{0}</a>').format(text)


class _Lenient(dict[str, Any]):
    """A mapping in which an absent key reads as None: older reports lack keys that were added since."""

    def __missing__(self, key: str) -> None:
        return None


def _lenient(value: Any, limit: int) -> Any:
    """Return the value with lenient mappings, and every text cut to the limit."""
    if isinstance(value, Mapping):
        return _Lenient({_lenient(key, limit): _lenient(item, limit) for key, item in value.items()})
    if isinstance(value, list):
        return [_lenient(item, limit) for item in value]
    if isinstance(value, str) and len(value) > limit:
        return f"{value[:limit]} ..[+{len(value) - limit}]"
    return value


class _View:
    """The document, cut to the limits, with links from ``path:line`` to the excerpts."""

    def __init__(self, document: Document, limits: Limits) -> None:
        self.limits = limits
        self.cuts: list[Markup] = []
        self.document = document
        job = document.get("job") or {}
        self.anchors: dict[tuple[str, int], str] = {}
        self.excerpts = self._excerpts(document.get("excerpts") or [])
        self.timeline_rows = self.some(document.get("timeline"), "timeline", limits.timeline)
        self.timeline = timeline_chart.timeline(document, limits.timeline)
        self.grid = rank_grid.rank_grid(document, limits.ranks)
        self.rank_rows = self.some(self._rank_rows(job.get("ranks") or []), "ranks")
        self.symptoms = self.some(document.get("symptoms"), "symptoms")
        self.inputs = self.some(document.get("inputs"), "inputs")
        self.hosts = self.some(job.get("hosts"), "hosts")
        self.software = self.some(self._pairs(job.get("software")), "environment")
        self.env = self.some(self._pairs(job.get("env")), "environment")
        self.frameworks = ", ".join(map(str, job.get("frameworks") or []))
        self.notes = self.some(self._notes(), "notes")
        self.diagnoses = self.some(document.get("diagnoses"), "possible_causes", 5)
        named = document.get("verdict") == "diagnosed" and self.diagnoses
        self.best = self.diagnoses[0] if named else None
        self.rivals = self.diagnoses[1:] if named else self.diagnoses
        self.verification = verification_html.section(document, self.some)

    def some(self, items: Any, what: str, limit: int | None = None) -> list[Any]:
        """Return the items up to the limit and remember what was cut."""
        kept: list[Any] = list(items or [])
        limit = self.limits.rows if limit is None else limit
        if len(kept) > limit:
            values = {"shown": limit, "total": len(kept)}
            cut = Pair(*(word("cut", x).format(what=word(what, x), **values) for x in ("en", "zh")))
            if both(cut) not in self.cuts:
                self.cuts.append(both(cut))
        return kept[:limit]

    def texts(self, value: object) -> list[str]:
        """Return the lines of a text of one or several lines."""
        return self.some(str(value or "").rstrip("\r\n").split("\n"), "evidence", 40)

    def grouped(self, items: Any, limit: int) -> list[list[Any]]:
        """Return the evidence in groups of neighbours that say the same."""
        shown = self.some(items, "evidence", limit)
        return [list(group) for _, group in groupby(shown, key=lambda e: (e["weight"], e["says"]))]

    def link(self, item: Mapping[str, Any], short: bool = False) -> Markup:
        """Return ``path:line`` (or the name alone), linked to the excerpt that shows the line."""
        shown = visible(place(item))
        shown = shown.rpartition("/")[2] if short else shown
        anchor = self.anchors.get((str(item.get("path")), item.get("line") or 0))
        if anchor is None:
            return Markup('<code class="at">{}</code>').format(shown)
        return Markup('<a class="at" href="#{}"><code>{}</code></a>').format(anchor, shown)

    def _excerpts(self, excerpts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        left, shown, files = self.limits.excerpt_lines, [], dict[str, int]()
        total = sum(len(e.get("lines") or []) for e in excerpts)
        for excerpt in excerpts:
            lines = (excerpt.get("lines") or [])[:left]
            left -= len(lines)
            if not lines:
                continue
            path, first = str(excerpt.get("path")), excerpt.get("first_line") or 1
            number = files.setdefault(path, len(files))
            marks, rows = set(excerpt.get("marks") or []), []
            for line, text in enumerate(lines, first):
                anchor = "" if (path, line) in self.anchors else f"L{number}-{line}"
                if anchor:
                    self.anchors[path, line] = anchor
                rows.append((line, anchor, line in marks, str(text).rstrip("\r\n")))
            shown.append({"path": path, "first": first, "last": first + len(lines) - 1, "rows": rows})
        self.some(range(total), "excerpts", self.limits.excerpt_lines)
        return shown

    def _rank_rows(self, ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return ranks that tell the same as one row each; suspects come first."""
        groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for entry in ranks:
            error = entry.get("first_error") or {}
            keys = (
                entry.get("exit"),
                error.get("signature"),
                entry.get("last_enqueued"),
                entry.get("last_completed"),
            )
            groups.setdefault((rank_grid.state_of(entry), *map(str, keys)), []).append(entry)
        order = list(shapes.SHAPES)
        rows = sorted(groups.items(), key=lambda g: (order.index(g[0][0]), g[1][0].get("rank") or 0))
        return [
            {
                "state": f"state_{key[0]}",
                "ranks": rank_ranges(e.get("rank") or 0 for e in entries),
                "hosts": ", ".join(sorted({str(e["host"]) for e in entries if e.get("host")})[:8]),
                "entry": entries[0],
                "single": len(entries) == 1,
            }
            for key, entries in rows
        ]

    def _pairs(self, mapping: Mapping[str, Any] | None) -> list[tuple[str, str]]:
        rows = sorted((mapping or {}).items())
        return [(k, ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for k, v in rows if v is not None]

    def _notes(self) -> list[Pair]:
        english, chinese = self.document.get("notes") or [], self.document.get("notes_zh") or []
        same = len(english) == len(chinese)
        return [Pair(str(n), str(chinese[i] if same else n)) for i, n in enumerate(english)]


def _source(name: str) -> str:
    return (resources.reports_dir() / "templates" / name).read_text("utf-8")


def _finalize(value: object) -> object:
    """Make everything that a template prints harmless; markup made by us passes."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, Markup) else visible("" if value is None else value)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(_source),
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        both=both,
        confidence=confidence,
        consequences=lambda document: _phrase(consequence_phrase, document),
        culprit=lambda item: _phrase(culprit_name, item),
        mark=verification_html.mark,
        path_mark=verification_html.path_mark,
        prose=prose,
        quote=lambda value: shlex.quote(str(value)),
        rank_ranges=rank_ranges,
        reference=reference,
        role_mark=lambda role: shapes.shape(shapes.ROLE_SHAPES[role], 9, 9, 6),
        say=say,
        total_lines=lambda document: sum(i.get("lines") or 0 for i in document.get("inputs") or []),
        width=shapes.WIDTH,
        word=word,
    )
    return made


def render(document: Document, lang: Lang) -> str:
    """Return the page; ``lang`` is the language shown first."""
    template = _environment().get_template("report.html.jinja")
    page = ""
    for limits in ATTEMPTS:
        same = _lenient(document, limits.text)
        page = template.render(doc=same, view=_View(same, limits), lang=lang)
        if len(page.encode("utf-8", "replace")) <= WANTED:
            break
    return page + "\n"


def produce(document: Document, view: View) -> str:
    """Return the whole text as a reader with this view wants it."""
    return render(document, view.lang)
