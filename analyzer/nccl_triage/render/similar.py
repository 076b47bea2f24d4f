"""Threads that look alike, as lines of a terminal and as a list in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nccl_triage.render.markdown_text import plain
from nccl_triage.render.text_page import TextPage
from nccl_triage.render.words import Document, Lang, harmless_line, pick, word

#: Formats in which a thread is shown of whatever verdict; the short text shows one of an unknown cause alone.
FORMATS = ("json", "ndjson", "markdown", "html", "github")


def shows(kind: str, verbose: int, report: bool) -> bool:
    """Tell whether a format shows threads of a diagnosed job, so that they have to be looked up."""
    return report or kind in FORMATS or (kind in ("text", "junit") and verbose > 0)


def say(page: TextPage, document: Document) -> None:
    """Add every thread: its address, what it was, and what both logs share."""
    for one in document.get("similar") or []:
        page.say(2, word("similar_thread", page.lang), str(one.get("url")))
        for key in ("says", "why"):
            page.lines += page.folded(f"    {harmless_line(pick(one, key, page.lang))}", 6)
        page.say(4, word("helped_there", page.lang), pick(one, "helped", page.lang))


def say_first(page: TextPage, document: Document) -> None:
    """Add the best thread on one line."""
    for one in (document.get("similar") or [])[:1]:
        told = word("in_brackets", page.lang).format(what=one.get("url"), more=pick(one, "title", page.lang))
        page.say(2, word("similar_thread", page.lang), told)


def markdown(document: Document, lang: Lang) -> list[str]:
    """Return the threads as a section, no lines where there are none."""
    found = document.get("similar") or []
    return [f"### {word('similar_threads', lang)}", "", *_items(found, lang), ""] if found else []


def _items(found: Iterable[Mapping[str, Any]], lang: Lang) -> list[str]:
    return [
        f"- <{one.get('url')}>: {word('semicolon', lang).join(plain(text) for text in _said(one, lang))}"
        for one in found
        if is_address(str(one.get("url")))
    ]


def _said(one: Mapping[str, Any], lang: Lang) -> Iterator[str]:
    yield from (pick(one, key, lang) for key in ("says", "why"))
    if pick(one, "helped", lang):
        yield f"{word('helped_there', lang)}{word('colon', lang)}{pick(one, 'helped', lang)}"


def is_address(url: str) -> bool:
    """Tell whether a text is a web address and no markup: a report may come from anywhere."""
    return url.startswith(("https://", "http://")) and url.isprintable() and not set(url) & set(" \"'<>\\")


def text(document: Document, lang: Lang, color: bool, width: int | None) -> str:
    """Return the page of ``nccl-triage similar``."""
    page = TextPage(color, width, lang)
    if document.get("similar"):
        say(page, document)
    else:
        page.line(word("similar_none", lang))
    return "\n".join(line.removeprefix("  ") for line in page.lines) + "\n"
