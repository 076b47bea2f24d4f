"""The verdict in one to three lines, for a pager, a chat or a container's termination message.

The first line is the headline, the second one cause, culprit and start, the third one whether the job may be started
again and what comes first. Each is cut at ``COLUMNS``, since most of these places show no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage.render import phrases, short_text
from nccl_triage.render.words import Document, Lang, RenderOptions, pick, visible, word

#: Columns of a line at most.
COLUMNS = 200


def produce(document: Document, options: RenderOptions) -> str:
    """Return the lines."""
    lang = options.lang
    lines = [phrases.headline(document, lang), _cause(document, lang), _next(document, lang)]
    return "".join(f"{visible(line, COLUMNS)}\n" for line in lines if line)


def _first(document: Document) -> Mapping[str, Any] | None:
    found = document.get("diagnoses") or []
    return found[0] if found and document.get("verdict") != "healthy" else None


def _cause(document: Document, lang: Lang) -> str:
    """Return the cause, or the candidates where none is known, with what is known of the failure."""
    best = _first(document)
    if best is None:
        return ""
    label, colon = word("root_cause", lang), word("colon", lang)
    told = [best]
    if document.get("verdict") == "unknown":
        label, told = word("possible_causes", lang).lower(), (document.get("diagnoses") or [])[:3]
    elif short_text.tied(document):
        told = short_text.tied(document)
    parts = [label + colon + word("or_between", lang).join(short_text.named(one, lang) for one in told)]
    if document.get("verdict") == "diagnosed":
        parts += [word(key, lang).lower() + colon + text for key, text in short_text.facts(document, best, lang)[:2]]
    parts += _foreign(document, lang)
    return word("semicolon", lang).join(parts)


def _foreign(document: Document, lang: Lang) -> list[str]:
    """Return the rules of others that had a part in the verdict, if any."""
    found = [str(name) for file in document.get("foreign_rules") or [] for name in file.get("ids") or []]
    return [word("foreign", lang) + word("colon", lang) + word("list_comma", lang).join(found[:3])] if found else []


def _next(document: Document, lang: Lang) -> str:
    """Return whether the job may be started again, what comes first, and how often the cause came back or the host failed before."""
    decision = phrases.restart_text(document, lang)
    if not decision:
        return ""
    best = _first(document)
    fixes = (best or {}).get("fixes") or []
    first = pick(fixes[0], "title", lang) if fixes and document.get("verdict") == "diagnosed" else ""
    parts = [word("colon", lang).join(filter(None, (decision, first)))]
    repeats = (document.get("restart") or {}).get("repeats")
    parts += [pick(entry, "says", lang) for entry in ([repeats] if repeats else document.get("recurrence") or [])[:1]]
    return word("semicolon", lang).join(parts)
