"""Replace what names somebody in a report document by pseudonyms: hosts, addresses, users, paths, projects, devices.

Names are collected first, from the fields that hold them and from the places in texts where they stand; then every text is
rewritten, so that a name is replaced wherever it occurs. What an address or a path shows of the failure is kept (see
``addresses`` and ``paths``); ranks, ports, versions, interfaces, devices and NCCL variables stay.
"""

from __future__ import annotations

from typing import Any

from nccl_triage.redaction import strings
from nccl_triage.redaction.rewrite import FieldKind, Rewriter, kind_of
from nccl_triage.redaction.secrets import mask_secrets

#: Rounds until a document changes no more: names that only the pseudonyms around them reveal are rare.
_ROUNDS = 4


def redact(document: dict[str, Any]) -> dict[str, Any]:
    """Return the report document with pseudonyms and without secrets; ``redaction.pseudonyms`` counts them.

    The same original has the same pseudonym everywhere, numbered in order of first appearance. A document that is
    redacted already is returned unchanged. No table of originals is kept.
    """
    threads = document.get("similar")  # public, and nothing of the log is in it
    made = mask_secrets({key: value for key, value in document.items() if key != "similar"})
    for _ in range(_ROUNDS):
        again = mask_secrets(_once(made))
        if "pseudonyms" in (made.get("redaction") or {}) and _content(again) == _content(made):
            break
        made = again
    return {**made, "similar": threads} if threads else made


class SessionRedactor:
    """Redacts the documents of one session: the same original has the same pseudonym in all of them.

    What was learnt from one document is found in those that come after it. Originals are kept in memory only.
    """

    def __init__(self) -> None:
        self._rewriter = Rewriter()

    def redact(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document with pseudonyms and without secrets, see ``redact``."""
        if (document.get("redaction") or {}).get("pseudonyms") is not None:
            return redact(document)  # its pseudonyms are those of somebody else
        threads = document.get("similar")
        own = mask_secrets({key: value for key, value in document.items() if key != "similar"})
        made = redact(_once(own, self._rewriter))  # once more for names that only the pseudonyms around them reveal
        self._rewriter.finish(made["redaction"]["pseudonyms"])
        return {**made, "similar": threads} if threads else made


def _content(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "redaction"}


def _once(document: dict[str, Any], session: Rewriter | None = None) -> dict[str, Any]:
    noted = document.get("redaction") or {}
    rewriter = session or Rewriter(noted.get("pseudonyms"))
    _collect(document, rewriter)
    kept: set[tuple[str, ...]] = set()

    def change(key: str, value: Any) -> Any:
        if isinstance(value, str):
            return rewriter.field(kind_of(key), value)
        if not isinstance(value, dict) or tuple(value) in kept:
            return value
        made = _renamed(value, rewriter)
        if made is value:  # most mappings have the keys of many others
            kept.add(tuple(value))
        return made

    made: dict[str, Any] = strings.changed(document, change)
    return {**made, "redaction": {**noted, "pseudonyms": rewriter.pseudonyms.counts()}}


def _collect(document: dict[str, Any], rewriter: Rewriter) -> None:
    """Learn every name before anything is rewritten, in an order that does not depend on that of the keys."""
    for host in (document.get("job") or {}).get("hosts") or ():
        if isinstance(host, dict) and isinstance(host.get("name"), str):
            rewriter.learn(FieldKind.HOST, "", host["name"])
    seen: set[tuple[str, str]] = set()
    for key, text in strings.texts(document):
        if (key, text) not in seen:
            seen.add((key, text))
            rewriter.learn(kind_of(key), key, text)
    rewriter.settle()


def _renamed(mapping: dict[str, Any], rewriter: Rewriter) -> dict[str, Any]:
    """Return a mapping whose keys are free of names; no value is lost when two keys become one."""
    made: dict[str, Any] = {}
    for name, value in mapping.items():
        shown = rewriter.field(FieldKind.TEXT, name)
        made[shown if shown not in made else f"{shown} ({len(made)})"] = value
    return mapping if made == mapping else made
