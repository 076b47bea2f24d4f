"""A finding in a few lines: what code-scanning pages and annotations say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage.render.words import (
    Document,
    Lang,
    confidence,
    culprit_name,
    pick,
    verification_text,
    visible,
    word,
)

#: What standard input is called among the inputs: no file that a link could open.
_NO_FILE = "<"


def headline(document: Document, lang: Lang) -> str:
    """Return what happened as one sentence, or the verdict's name where an older document has none."""
    return visible(pick(document, "headline", lang) or word(str(document.get("verdict")), lang))


def sure(diagnosis: Mapping[str, Any], lang: Lang) -> str:
    """Return ``confidence 0.93, established``."""
    status = word(str(diagnosis.get("status") or "possible"), lang)
    return f"{word('confidence', lang)} {confidence(diagnosis.get('confidence'))}, {visible(status)}"


def lines(diagnosis: Mapping[str, Any], lang: Lang, leads: bool = True) -> list[str]:
    """Return a cause in a few lines free of control characters.

    A cause that leads has its culprits and the first fix, a merely possible one the check that tells more.
    """
    named = f"{diagnosis.get('cause')} ({sure(diagnosis, lang)}): {pick(diagnosis, 'title', lang)}"
    found = [("root_cause" if leads else "possible", named)]
    for culprit in diagnosis.get("culprits") or [] if leads else []:
        why = pick(culprit, "why", lang)
        found.append(("culprit", culprit_name(culprit, lang) + (f": {why}" if why else "")))
    found.append(("verification", verification_text(diagnosis, lang)))
    if leads:
        found += [("fix", pick(fix, "title", lang)) for fix in (diagnosis.get("fixes") or [])[:1]]
    else:
        found.append(("check", pick(diagnosis.get("next_check") or {}, "what", lang)))
    return [f"{word(key, lang).lower()}: {visible(text)}" for key, text in found if text]


def is_file(path: object) -> bool:
    """Tell whether a path of the document names a file."""
    return isinstance(path, str) and bool(path) and not path.startswith(_NO_FILE)


def shown_text(item: Mapping[str, Any]) -> str:
    """Return the log lines of one piece of evidence, free of control characters."""
    return "\n".join(visible(line) for line in str(item.get("text") or "").rstrip("\r\n").split("\n"))
