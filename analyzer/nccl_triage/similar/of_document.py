"""Threads that look like the job of a report document: of a saved report, or after experiments changed the diagnosis.

A document keeps fewer lines than a diagnosis sees, so the features are those of its timeline, symptoms and versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nccl_triage.diagnosis.facts import software
from nccl_triage.engine.schema import RuleSet
from nccl_triage.lazy_regex import lazily
from nccl_triage.parsers import templates
from nccl_triage.parsers.tracebacks import TRACEBACK
from nccl_triage.similar import describe, search
from nccl_triage.similar.threads import ThreadIndex, shipped

Document = Mapping[str, Any]

_FAILED = ("root", "cascade")
_EXCEPTION = lazily(r"(?:[A-Za-z_]\w{0,60}\.){0,8}(?P<type>[A-Z]\w{2,80}):")


def similar(document: Document, rules: RuleSet, index: ThreadIndex | None = None) -> list[dict[str, Any]]:
    """Return the threads as entries of a document, the best first; none for a job that did not fail."""
    if document.get("verdict") == "healthy":
        return []
    diagnoses = document.get("diagnoses") or []
    beliefs = {str(entry.get("cause")): float(entry.get("confidence") or 0) for entry in diagnoses}
    beliefs[search.UNKNOWN] = max(0.0, 1.0 - sum(beliefs.values()))
    names = frozenset(_features(document))
    found = search.alike(names, _first(document), beliefs, shipped() if index is None else index)
    return [describe.entry(one, rules) for one in found]


def _features(document: Document) -> Iterator[str]:
    """Yield the features that a document shows, named as ``search.features_of`` does."""
    timeline = document.get("timeline") or []
    for seen in (*(document.get("symptoms") or []), *timeline):
        yield f"s:{seen.get('signature')}"
    failures = [event for event in timeline if event.get("role") in _FAILED]
    first = next((event for event in failures if event.get("role") == "root"), None)
    if first is not None:
        yield f"r:{first.get('signature')}"
    cascade = next(
        (at for at, event in enumerate(failures) if event.get("role") == "cascade"), len(failures)
    )  # what stands before it is no consequence
    for at, event in enumerate(failures):
        if at < cascade:
            yield f"q:{event.get('signature')}"
        text = str(event.get("text") or "")
        yield from (f"w:{word}" for word in templates.spoken(text))
    types = [
        match["type"]
        for event in failures
        if event.get("signature") == TRACEBACK and (match := _EXCEPTION.search(str(event.get("text") or "")))
    ]
    if types:
        yield from (f"e:{types[0]}", f"l:{types[-1]}")
    job = document.get("job") or {}
    for program, version in (job.get("software") or {}).items():
        numbers = software.version_key(str(version))
        if numbers:
            yield f"v:{program} {'.'.join(map(str, numbers[:2]))}"


def renewed(before: Document, after: dict[str, Any], rules: RuleSet) -> dict[str, Any]:
    """Return a document with threads of the cause that comes first now, where that is another one than before."""
    if "similar" not in before or _first(before) == _first(after):
        return after
    found = similar(after, rules)
    rest = {key: value for key, value in after.items() if key != "similar"}
    return {**rest, "similar": found} if found else rest


def _first(document: Document) -> str | None:
    """Return the cause that a document names, None where it names none."""
    diagnoses = document.get("diagnoses") or []
    return str(diagnoses[0].get("cause")) if document.get("verdict") == "diagnosed" and diagnoses else None
