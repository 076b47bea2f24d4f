"""Pages of consoles and log viewers as the lines that a browser shows.

Only the tags are looked at that break lines; what is not shown (scripts, styles, the head) is left out.
"""

from __future__ import annotations

import html

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import ToolReport

MAX_SIZE = 64 << 20
_PAGE = lazily(
    rb"(?i)(?:\xef\xbb\xbf)?\s*(?:<!--[^>]{0,400}-->\s*)?"
    rb"<(?:!doctype html|(?:html|head|body|pre|div|table|ol|ul|p|span)(?=[\s>]))"
)
_TAG = lazily(r"<(?:!--|(?P<end>/?)(?P<name>[A-Za-z][A-Za-z0-9]{0,20})(?P<rest>[^<>]{0,4000})>|[!?][^<>]{0,4000}>)")
_BLOCKS = frozenset({
    "address", "article", "blockquote", "body", "br", "dd", "div", "dl", "dt", "footer", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hr", "html", "li", "main", "nav", "ol", "p", "pre", "section", "table", "tbody", "thead", "tr", "ul",
})  # fmt: skip
_CELLS = frozenset({"td", "th"})
#: What is not shown -> where it ends.
_HIDDEN = {name: lazily(rf"(?i)</{name}[^<>]{{0,100}}>?") for name in ("head", "script", "style", "template")}
_COMMENT_END = lazily("-->")


def _is_page(name: str, sample: bytes) -> bool:
    return _PAGE.match(sample) is not None


class _Page:
    """The text of a page, as it is shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._line: list[str] = []
        self._row = False

    def text(self, text: str, kept: bool) -> None:
        """Add text; between the tags of a page, blanks with a line break among them only lay out its source."""
        if not kept and "\n" in text and not text.strip():
            return
        first, *others = html.unescape(text).split("\n")
        self._line.append(first)
        for other in others:
            self._flush(keep=True)
            self._line.append(other)

    def tag(self, name: str, end: bool) -> None:
        """Break the line, or the cell, where a tag does."""
        if name in _BLOCKS:
            self._flush(keep=name == "br")
            self._row = False
        elif name in _CELLS and not end:
            # The cells before hold the number of the line, if anything.
            if self._row and any(self._line):
                self._line.append("\t")
            self._row = True

    def _flush(self, keep: bool) -> None:
        line = "".join(self._line).rstrip()
        self._line.clear()
        if line or keep:
            self.lines.append(line)

    def end(self) -> None:
        """Add the last line."""
        self._flush(keep=False)


def _render(data: bytes, info: SourceInfo) -> bytes:
    text, shown = data.decode("utf-8", "replace"), _Page()
    at, pre = 0, 0
    while at < len(text):
        tag = _TAG.search(text, at)
        shown.text(text[at : tag.start() if tag else len(text)], pre > 0)
        if tag is None:
            break
        name, end, at = (tag["name"] or "").lower(), bool(tag["end"]), tag.end()
        closing = _COMMENT_END if tag[0] == "<!--" else None if end else _HIDDEN.get(name)
        if closing is not None:
            close = closing.search(text, at)
            at = len(text) if close is None else close.end()
        elif name:
            pre = max(0, pre + (-1 if end else 1)) if name == "pre" else pre
            shown.tag(name, end)
    shown.end()
    return "".join(f"{line}\n" for line in shown.lines).encode("utf-8", "replace")


REPORTS = (ToolReport("web-page", MAX_SIZE, _is_page, _render, general=True),)
