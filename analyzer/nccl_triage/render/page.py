"""What one page shows of a document: cut to limits, joined with links to the excerpts, texts as markup in both languages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup, escape

from nccl_triage.render import chart_symbols, curves, network_charts, phrases, rank_charts, verification_html
from nccl_triage.render.words import WORDS, Document, Pair, pick, place, rank_ranges, visible, word


def both(pair: Sequence[str]) -> Markup:
    """Return a text in both languages, of which the style sheet shows one."""
    en, zh = visible(pair[0]), visible(pair[1])
    if en == zh:
        return escape(en)
    spans = '<span class="en" lang="en">{}</span><span class="zh" lang="zh-Hans">{}</span>'
    return Markup(spans).format(en, zh)


def say_both(key: object, **values: object) -> Markup:
    """Return an interface word in both languages."""
    pair = WORDS.get(str(key), Pair(str(key), str(key)))
    return both([text.format(**values) if values else text for text in pair])


def prose(item: Mapping[str, Any], key: str) -> Markup:
    """Return one of the document's texts for people in both languages."""
    return both((pick(item, key, "en"), pick(item, key, "zh")))


def phrase(function: Callable[[Any, Any], str], item: Any) -> Markup:
    """Return what a function of (item, language) says in both languages."""
    return both((function(item, "en"), function(item, "zh")))


def label(pair: Pair, attributes: str = "") -> Markup:
    """Return a text of a chart in both languages; ``attributes`` are those of the ``text`` element, written by us."""
    en, zh = visible(pair[0]), visible(pair[1])
    if en == zh:
        return Markup("<text {}>{}</text>").format(Markup(attributes), en)
    two = '<text class="en" lang="en" {0}>{1}</text><text class="zh" lang="zh-Hans" {0}>{2}</text>'
    return Markup(two).format(Markup(attributes), en, zh)


def reference(url: object) -> Markup:
    """Return a link to documentation; anything but a plain web address stays text."""
    text = visible(url, 500)
    if not text.startswith(("https://", "http://")) or set(text) & set(" \"'<>\\"):
        return Markup("<code>{}</code>").format(text)
    return Markup('<a href="{0}" rel="noreferrer noopener">{0}</a>').format(text)


@dataclass(frozen=True)
class Limits:
    """How much of the document one attempt puts into the page."""

    text: int = 2000
    rows: int = 400
    timeline: int = 200
    evidence: int = 20
    excerpt_lines: int = 1500
    ranks: int = rank_charts.MAX_RANKS


class ReportPage:
    """The document, cut to the limits, with links from ``path:line`` to the excerpts."""

    def __init__(self, document: Document, limits: Limits) -> None:
        self.limits = limits
        self.cuts: list[Markup] = []
        self.document = document
        job = document.get("job") or {}
        self.anchors: dict[tuple[str, int], str] = {}
        self.excerpts = self._excerpts(document.get("excerpts") or [])
        self.timeline_rows = self.some(document.get("timeline"), "timeline", limits.timeline)
        self.timeline = rank_charts.timeline(document, limits.timeline)
        self.grid = rank_charts.rank_grid(document, limits.ranks)
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
        self.story = phrases.incident_story(document)
        self.networks = network_charts.draw_network_map(document) if self._network_matters() else None
        self.curves = curves.draw(document)
        self.peers = network_charts.draw_heat_map(document)
        self.compared = phrases.compared(document)
        self.compared_logs = phrases.good_logs(self.compared) if self.compared else ""
        self.compared_rows = self.some(
            phrases.difference_rows(self.compared) if self.compared else [], "compared_with", 80
        )
        self.stages = self._stages()
        self.remarks = self._remarks(job.get("env_remarks") or [])
        self.verification = verification_html.section(document, self.some)

    def _network_matters(self) -> bool:
        """Tell whether the map of networks helps: a cause of that family is in question, or a connection failed."""
        suspects = self.document.get("diagnoses") or []
        failed = (self.document.get("network") or {}).get("failed")
        return bool(failed) or any(diagnosis.get("family") == "network" for diagnosis in suspects[:3])

    def _stages(self) -> list[tuple[str, list[Mapping[str, Any]]]]:
        """Return the first cause's advice by urgency."""
        advice = (self.best or {}).get("stages") or []
        return [(str(when), list(items)) for when, items in groupby(advice, key=lambda item: item.get("when"))]

    def _remarks(self, remarks: Sequence[Mapping[str, Any]]) -> Mapping[str, list[Mapping[str, Any]]]:
        """Return what is to be said of each variable."""
        found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for remark in remarks:
            found[str(remark.get("name"))].append(remark)
        return found

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
            groups.setdefault((rank_charts.state_of(entry), *map(str, keys)), []).append(entry)
        order = list(chart_symbols.SHAPES)
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
