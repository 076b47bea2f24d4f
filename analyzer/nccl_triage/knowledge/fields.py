"""Typed fields of the knowledge's files; a wrong one is a RuleError with its file:line."""

from __future__ import annotations

import re

from nccl_triage.engine.nodes import Node
from nccl_triage.engine.schema import LANGUAGES
from nccl_triage.knowledge import versions
from nccl_triage.knowledge.model import GRAMMARS, LEVELS, Bound, Grammar, Text, Trap

Part = dict[str, Node]


def bilingual(node: Node) -> Text:
    """Return a text in both languages."""
    parts = node.keys(LANGUAGES)
    return {language: parts[language].text() for language in LANGUAGES}


def maybe_bilingual(part: Part, key: str) -> Text | None:
    """Return a text in both languages, or None when the key is absent."""
    return bilingual(part[key]) if key in part else None


def text(part: Part, key: str) -> str | None:
    """Return a text, or None when the key is absent."""
    return part[key].text() if key in part else None


def texts(part: Part, key: str) -> tuple[str, ...]:
    """Return a list of texts, empty when the key is absent."""
    return tuple(part[key].texts()) if key in part else ()


def mapping(part: Part, key: str) -> dict[str, str]:
    """Return a mapping of texts, empty when the key is absent."""
    return {name: node.text() for name, node in part[key].mapping().items()} if key in part else {}


def number(part: Part, key: str) -> float | None:
    """Return a number, or None when the key is absent."""
    if key not in part:
        return None
    try:
        return float(part[key].text())
    except ValueError:
        raise part[key].fail("expected a number, found {text!r}", text=part[key].text()) from None


def bounds(part: Part, key: str) -> tuple[Bound, ...]:
    """Return conditions on versions, e.g. ``[nccl >= 2.27]``."""
    found: list[Bound] = []
    for item in part[key].items() if key in part else ():
        bound = versions.bound(item.text())
        if bound is None:
            raise item.fail("{text!r} is no condition on a version", "write it as: nccl >= 2.27", text=item.text())
        found.append(bound)
    return tuple(found)


def grammar(node: Node) -> Grammar:
    """Return which values are understood: the name of a grammar alone, or a mapping with its limits."""
    if not isinstance(node.value, dict):
        return Grammar(node.choice(GRAMMARS))
    part = node.keys(("kind",), ("of", "least", "most", "also", "unit"))
    kind = part["kind"].choice(GRAMMARS)
    if kind in ("one-of", "list-of") and "of" not in part:
        raise node.fail("values of kind {kind} need 'of'", kind=kind)
    return Grammar(
        kind,
        of=texts(part, "of"),
        least=number(part, "least"),
        most=number(part, "most"),
        also=texts(part, "also"),
        unit=text(part, "unit"),
    )


def trap(node: Node) -> Trap:
    """Return a value that does not do what people expect."""
    part = node.keys(("says",), ("level", "matches", "below", "above", "missing", "versions"))
    if not part.keys() & {"matches", "below", "above", "missing"}:
        raise node.fail("a trap needs 'matches', 'below', 'above' or 'missing'")
    try:
        pattern = re.compile(part["matches"].text()) if "matches" in part else None
    except re.error as error:
        raise part["matches"].fail("not a valid regular expression: {error}", error=error) from None
    level = part["level"].choice(LEVELS) if "level" in part else "warn"
    return Trap(
        says=bilingual(part["says"]),
        level="note" if level == "note" else "warn",
        matches=pattern,
        below=number(part, "below"),
        above=number(part, "above"),
        missing=text(part, "missing"),
        bounds=bounds(part, "versions"),
    )
