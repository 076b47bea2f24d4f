"""Known issues of programs, as lines of a terminal and as a list in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nccl_triage.render.markdown_text import plain
from nccl_triage.render.similar import is_address
from nccl_triage.render.text_page import TextPage
from nccl_triage.render.words import Document, Lang, pick, place, word


def say_first(page: TextPage, document: Document) -> None:
    """Add the first issue on one line, with its address; of one that is mended in the first place, the address alone."""
    for one in (document.get("known_issues") or [])[:1]:
        told = any(one.get("url") in (fix.get("references") or []) for fix in _first_repairs(document))
        text = str(one.get("program")) if told else pick(one, "says", page.lang)
        page.say(2, word("known_issue", page.lang), f"{text} {one.get('url')}")


def _first_repairs(document: Document) -> Sequence[Mapping[str, Any]]:
    diagnoses = document.get("diagnoses") or []
    diagnosed = document.get("verdict") == "diagnosed"
    return (diagnoses[0].get("fixes") or [])[:1] if diagnosed and diagnoses else []


def say_all(page: TextPage, document: Document) -> None:
    """Add every issue with what it is, how it is known and where its message stands."""
    for one in document.get("known_issues") or []:
        lang = page.lang
        title = word("in_brackets", lang).format(what=pick(one, "title", lang), more=one.get("id"))
        page.say(2, word("known_issue", lang), title)
        page.say(4, place(one), f"{pick(one, 'says', lang)} {one.get('url')} ({known_by(one, lang)})")


def known_by(issue: Document, lang: Lang) -> str:
    """Return how a mend or a way around is known, in words."""
    return word(f"known_by_{str(issue.get('how_known')).replace('-', '_')}", lang)


def markdown(document: Document, lang: Lang) -> list[str]:
    """Return the issues as a section, no lines where there are none."""
    items = [
        f"- {plain(pick(one, 'title', lang))}{word('colon', lang)}{plain(pick(one, 'says', lang))} <{one.get('url')}> "
        f"({known_by(one, lang)})"
        for one in document.get("known_issues") or []
        if is_address(str(one.get("url")))
    ]
    return [f"### {word('known_issues', lang)}", "", *items, ""] if items else []
