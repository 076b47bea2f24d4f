"""What one page shows of a document: cut to limits, joined with links to the excerpts, texts as markup in both languages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from markupsafe import Markup, escape

from nccl_triage.lazy_regex import lazily
from nccl_triage.render import (
    chart_symbols,
    curves,
    network_charts,
    phrases,
    rank_charts,
    time_axis,
    to_do,
    verification_html,
)
from nccl_triage.render.hard_errors import hard_errors
from nccl_triage.render.short_text import RIVAL
from nccl_triage.render.text_page import telling, window
from nccl_triage.render.vocabulary import WORDS, Pair
from nccl_triage.render.words import Document, pick, place, rank_ranges, visible, word

#: A name with hyphens, such as that of a host.
_HYPHENED = lazily(r"(?<![\w./-])[A-Za-z][\w.]{0,20}(?:-[\w.]{1,20}){1,4}(?![\w/-])")


#: A longer word of a command is broken wherever the line ends.
_LONG_WORD = 60


def whole(text: str) -> Markup:
    """Return a text in which no name is broken at its hyphens: each is laid out as one word where it has room."""
    if "-" not in text:
        return escape(text)
    parts, end = [], 0
    for found in _HYPHENED.finditer(text):
        parts += [escape(text[end : found.start()]), Markup("<bdi>{}</bdi>").format(found[0])]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def command(line: str) -> Markup:
    """Return a command whose words are not broken at hyphens, as ``cp -a`` would be."""
    words = (
        Markup("<bdi>{}</bdi>").format(part) if "-" in part and len(part) < _LONG_WORD else escape(part)
        for part in visible(line).split(" ")
    )
    return Markup(" ").join(words)


def both(pair: Sequence[str]) -> Markup:
    """Return a text in both languages, of which the style sheet shows one."""
    en, zh = visible(pair[0]), visible(pair[1])
    if en == zh:
        return whole(en)
    spans = '<span class="en" lang="en">{}</span><span class="zh" lang="zh-Hans">{}</span>'
    return Markup(spans).format(whole(en), whole(zh))


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


@dataclass(frozen=True)
class EvidenceGroup:
    """Lines that say the same, the first one apart from the others."""

    weight: str
    says: Pair
    first: Mapping[str, Any]
    others: list[Mapping[str, Any]]


@dataclass(frozen=True)
class LogRow:
    """A line of the log around the evidence; a marked one is cut in three so that its telling part stands out."""

    line: int
    anchor: str
    marked: bool
    parts: tuple[str, str, str]


@dataclass(frozen=True)
class LogWindow:
    """Lines of a log, in pieces of neighbours."""

    path: str
    pieces: list[list[LogRow]]

    @property
    def digits(self) -> int:
        """The room that the number of a line takes."""
        return max(len(str(piece[-1].line)) for piece in self.pieces)

    @property
    def span(self) -> str:
        """The first and the last line."""
        return f"{self.pieces[0][0].line}-{self.pieces[-1][-1].line}"


#: Most columns of a line in the story, and how a traceback opens.
STORY_TEXT, _OPENING = 110, "Traceback (most recent call"
#: Most lines of the log that are shown with the evidence, and around each of its lines.
NEAR_ROWS, BEFORE, AFTER = 14, 2, 1
#: Characters of a line that is no proof, with the evidence and in the appendix.
CONTEXT_TEXT, APPENDIX_TEXT = 110, 400


class ReportPage:
    """The document, cut to the limits, with links from ``path:line`` to the lines of the log that are shown."""

    def __init__(self, document: Document, limits: Limits) -> None:
        self.limits = limits
        self.cuts: list[Markup] = []
        self.document = document
        job = document.get("job") or {}
        self.diagnoses = self.some(document.get("diagnoses"), "possible_causes", 5)
        named = document.get("verdict") == "diagnosed" and self.diagnoses
        self.best = self.diagnoses[0] if named else None
        #: All other causes, and those likely enough for the first pages.
        self.others = self.diagnoses[1:] if named else self.diagnoses
        self.rivals = [cause for cause in self.others if not named or float(cause.get("confidence") or 0) >= RIVAL]
        self.anchors: dict[tuple[str, int], str] = {}
        leading: Mapping[str, Any] = self.best or next(iter(self.rivals), {})
        self.evidence = self.grouped(leading.get("evidence"), limits.evidence)
        #: Windows with the evidence, the lines in them, those that are proof, and the windows of the appendix.
        self.near: set[tuple[str, int]] = set()
        self.proofs: set[tuple[str, int]] = set()
        self.windows, self.excerpts = self._windows(document.get("excerpts") or [])
        self.story = phrases.incident_story(document)
        self.timeline = time_axis.timeline(document, limits.timeline)
        timed, apart = time_axis.placed(document, limits.timeline)
        self.timed_rows = [event for event, _ in sorted(timed, key=lambda pair: pair[1])]
        self.apart_rows = apart
        self.some(document.get("timeline"), "timeline", limits.timeline)
        self.grid = rank_charts.rank_grid(document, limits.ranks)
        self.rank_rows = self.some(self._rank_rows(job.get("ranks") or []), "ranks")
        self.symptoms = self.some(document.get("symptoms"), "symptoms")
        self.inputs = self.some(document.get("inputs"), "inputs")
        self.hosts = self.some(job.get("hosts"), "hosts")
        self.software = self.some(self._pairs(job.get("software")), "environment")
        self.env = self.some(self._pairs(job.get("env")), "environment")
        self.frameworks = ", ".join(map(str, job.get("frameworks") or []))
        self.notes = self.some(self._notes(), "notes")
        self.networks = network_charts.draw_network_map(document) if self._network_matters() else None
        self.curves = curves.draw(document)
        self.compared = phrases.compared(document)
        self.compared_logs = phrases.good_logs(self.compared) if self.compared else ""
        self.compared_rows = self.some(
            phrases.difference_rows(self.compared) if self.compared else [], "compared_with", 80
        )
        self.tasks = to_do.tasks(document, self.best)
        self.missing = [item for item in document.get("not_seen") or [] if not self.tasks.tells(item)]
        self.remarks = self._remarks(job.get("env_remarks") or [])
        self.verification = verification_html.section(document, self.some)

    def _network_matters(self) -> bool:
        """Tell whether the map of networks helps: the cause is of that family, or may be where none is named."""
        suspects = [self.best] if self.best else self.rivals[:3]
        return any(diagnosis.get("family") == "network" for diagnosis in suspects)

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

    def grouped(self, items: Any, limit: int) -> list[EvidenceGroup]:
        """Return the evidence in groups of what says the same, in the order of their first lines."""
        groups: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
        for item in self.some(items, "evidence", limit):
            groups.setdefault((item.get("weight"), item.get("says")), []).append(item)
        return [
            EvidenceGroup(str(weight or ""), Pair(pick(first, "says", "en"), pick(first, "says", "zh")), first, others)
            for (weight, _), (first, *others) in groups.items()
        ]

    def is_near(self, item: Mapping[str, Any]) -> bool:
        """Tell whether a line is marked in the windows beside the evidence."""
        return (str(item.get("path")), item.get("line") or 0) in self.proofs

    def quote(self, item: Mapping[str, Any]) -> str:
        """Return the telling part of a line, empty where the line only opens a traceback or is marked as proof."""
        text = visible(str(item.get("text") or "").split("\n")[0])
        span = telling(text)
        opens = _OPENING in text
        return "" if opens or self.is_near(item) else window(text, span, STORY_TEXT).text

    def link(self, item: Mapping[str, Any], short: bool = False) -> Markup:
        """Return ``path:line`` (or the name alone), linked to the excerpt that shows the line."""
        shown = visible(place(item))
        shown = shown.rpartition("/")[2] if short else shown
        anchor = self.anchors.get((str(item.get("path")), item.get("line") or 0))
        if anchor is None:
            return Markup('<code class="at">{}</code>').format(shown)
        return Markup('<a class="at" href="#{}"><code>{}</code></a>').format(anchor, shown)

    def _windows(self, excerpts: Sequence[Mapping[str, Any]]) -> tuple[list[LogWindow], list[LogWindow]]:
        """Return the lines around the evidence that matters most, and all others for the appendix; each line once."""
        left, files = self.limits.excerpt_lines, dict[str, int]()
        found: list[tuple[str, list[LogRow]]] = []
        for excerpt in excerpts:
            lines = (excerpt.get("lines") or [])[:left]
            left -= len(lines)
            path, first = str(excerpt.get("path")), excerpt.get("first_line") or 1
            number = files.setdefault(path, len(files))
            marks, rows = set(excerpt.get("marks") or []), []
            for line, text in enumerate(lines, first):
                if (path, line) not in self.anchors:
                    self.anchors[path, line] = f"L{number}-{line}"
                    rows.append(_row(line, f"L{number}-{line}", line in marks, str(text).rstrip("\r\n")))
            found.append((path, rows))
        self.some(range(sum(len(e.get("lines") or []) for e in excerpts)), "excerpts", self.limits.excerpt_lines)
        self._choose_near(found)
        near: dict[str, LogWindow] = {}
        rest: list[LogWindow] = []
        for path, rows in found:
            for beside, part in groupby(rows, key=lambda row: (path, row.line) in self.near):
                if not beside:
                    rest.append(LogWindow(path, [list(part)]))
                    continue
                near.setdefault(path, LogWindow(path, [])).pieces.append([_shortened(row) for row in part])
        self.proofs = {
            (path, row.line) for path, rows in found for row in rows if row.marked and (path, row.line) in self.near
        }
        return list(near.values()), rest

    def _choose_near(self, found: Sequence[tuple[str, Sequence[LogRow]]]) -> None:
        """Choose the lines to show beside the evidence, around its first lines and the first fault."""
        fault = (self.document.get("incident") or {}).get("first_fault") or {}
        wanted = [group.first for group in self.evidence]
        if not wanted or telling(str(fault.get("text") or "")).worth:
            wanted.append(fault)
        wanted += hard_errors(self.document)
        places = {(path, row.line): (rows, at) for path, rows in found for at, row in enumerate(rows)}
        for item in wanted:
            path = str(item.get("path"))
            rows, at = places.get((path, item.get("line") or 0), ((), 0))
            lines = {(path, row.line) for row in rows[max(at - BEFORE, 0) : at + AFTER + 1]}
            if len(self.near | lines) <= NEAR_ROWS:
                self.near |= lines

    def _rank_rows(self, ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return ranks that tell the same as one row each; suspects come first."""
        groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        hosts = rank_charts.hosts_of(self.document)
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
                "hosts": ", ".join(sorted({hosts[e["rank"]] for e in entries if e.get("rank") in hosts})[:8]),
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


def _row(line: int, anchor: str, marked: bool, text: str) -> LogRow:
    if not marked:
        return LogRow(line, anchor, False, (visible(text, APPENDIX_TEXT), "", ""))
    start, end, _ = telling(text)
    while start < end < len(text) and text[end - 1].isalnum() and text[end].isalnum():  # no word is marked in part
        end += 1
    while 0 < start < end and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    return LogRow(line, anchor, True, (text[:start], text[start:end], text[end:]))


def _shortened(row: LogRow) -> LogRow:
    return row if row.marked else replace(row, parts=(visible(row.parts[0], CONTEXT_TEXT), "", ""))
