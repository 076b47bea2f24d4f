"""Texts as markup for the page: both languages side by side, of which the style sheet shows one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from nccl_triage.render.words import WORDS, Pair, pick, visible


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
