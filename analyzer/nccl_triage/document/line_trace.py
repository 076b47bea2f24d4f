"""The way of one line: its prefixes, who printed it, its signatures, its run, whether it counts, and as evidence for what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nccl_triage.diagnosis.findings import Findings
from nccl_triage.document import trace
from nccl_triage.engine import match
from nccl_triage.engine.pattern_progress import matched_beginning
from nccl_triage.engine.schema import Signature
from nccl_triage.observations.event import Event
from nccl_triage.parsers import unknown_errors
from nccl_triage.parsers.tracebacks import lines_of
from nccl_triage.parsers.wrappers import Peeled, PrefixReader
from nccl_triage.story.story import Run

#: Lines at the beginning of a source by which its prefixes are known.
HEAD = 400
#: Signatures that nearly match that are told, and of how many it is measured how far they get.
NEAR, TRIED = 3, 12
#: Fields that tell who printed a line.
_CONTEXT = ("rank", "local_rank", "host", "address", "pid", "gpu", "place", "program", "actor", "level")


def describe(diagnosis: Findings, path: str, number: int, texts: Mapping[int, str]) -> dict[str, Any]:
    """Return the way of a line; ``texts`` holds it and the first lines of its source, by their numbers."""
    text = texts[number]
    prefixes = PrefixReader(diagnosis.case.rules.prefixes)
    peeled = prefixes.peel(text, prefixes.sniff([texts[line] for line in sorted(texts) if line <= HEAD]))
    kept = [event for event in _events(diagnosis) if event.source == path and _covers(event, number)]
    shown = {(event.source, event.line) for event in kept}
    decisions = list(trace.decisions(diagnosis))
    signatures = diagnosis.case.rules.signatures
    likely = [signature for signature in signatures.values() if _anchors_in(signature, text)]
    matched = {signature.id: fields for signature, fields in match.matches(likely, peeled.text, text)}
    run = next(
        ((place, run) for place, run in enumerate(diagnosis.case.story.runs, 1) if _holds(run, path, number)), None
    )
    return {
        "path": path,
        "line": number,
        "text": text[: trace.TEXT],
        "message": peeled.text[: trace.TEXT],
        "prefixes": list(peeled.wrappers),
        "speaker": _speaker(diagnosis, kept, peeled, run[1] if run is not None else None),
        "signatures": [_signature(signatures.get(name), name, matched, kept) for name in _names(matched, kept)],
        "looks_like_error": unknown_errors.sounds(peeled.text),
        "near": [] if matched else list(_near(likely, peeled.text, text)),
        "run": None if run is None else run[0],
        "runs": len(diagnosis.case.story.runs),
        "decisions": _distinct(
            trace.decision(made)
            for made in decisions
            if made.subject is not None and (made.subject.source, made.subject.line) in shown
        ),
        "decided_by_it": [
            {"rule": made.rule, "answer": made.answer}
            for made in decisions
            if any((event.source, event.line) in shown for event in made.events)
        ],
        "evidence": list(_evidence(diagnosis, path, number)),
    }


def _events(diagnosis: Findings) -> Iterator[Event]:
    for run in diagnosis.case.story.runs:
        yield from run.printed
        yield from (event for event, why in run.aside if why.table == "belongs")


def _covers(event: Event, number: int) -> bool:
    """Tell whether a line is one of an event's: the event may stand for a whole traceback."""
    first, last = lines_of(event) or (event.line, event.last_line)
    return first <= number <= last


def _distinct(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return decisions without those that another one of the same rule repeats."""
    return list({(one["rule"], one["says"]): one for one in found}.values())


def _names(matched: Mapping[str, object], kept: list[Event]) -> list[str]:
    return list(dict.fromkeys([*(event.signature for event in kept), *matched]))


def _anchors_in(signature: Signature, text: str) -> bool:
    anchors = signature.anchors
    if anchors is None:
        return False
    inside = text.lower() if anchors.caseless else text
    return any(anchor in inside for anchor in anchors.texts)


def _signature(
    known: Signature | None, name: str, matched: Mapping[str, Mapping[str, str]], kept: list[Event]
) -> dict[str, Any]:
    """Return what a signature says of the line; it may be one that a parser made of several lines."""
    event = next((event for event in kept if event.signature == name), None)
    fields = event.fields if event is not None else matched.get(name, {})
    kind = event.kind if event is not None else (known.kind if known is not None else "")
    return {
        "signature": name,
        "where": known.where if known is not None else None,
        "meaning": known.meaning if known is not None else None,
        "kind": kind,
        "role": event.role if event is not None else (known.role if known is not None else "context"),
        "fields": {key: value[:80] for key, value in list(fields.items())[:12]},
        "kept": event is not None,
        "lines": None if event is None else list(lines_of(event) or (event.line, event.last_line)),
    }


def _near(likely: list[Signature], message: str, text: str) -> Iterator[dict[str, Any]]:
    """Yield the signatures that nearly match: those that their premise refuses, then those whose pattern gets furthest."""
    refused = [one for one in likely if one.pattern.search(text if one.raw_line else message) is not None]
    for signature in refused[:NEAR]:
        premise = signature.premise.source if signature.premise is not None else ""
        yield {"signature": signature.id, "where": signature.where, "refused_by": premise, "matches_up_to": None}
    longest = sorted(
        (one for one in likely if one not in refused),
        key=lambda one: (-max(len(anchor) for anchor in one.anchors.texts) if one.anchors else 0, one.id),
    )
    found = [(matched_beginning(one.pattern.source, text if one.raw_line else message), one) for one in longest[:TRIED]]
    found.sort(key=lambda item: (-len(item[0]) / max(1, len(item[1].pattern.source)), item[1].id))
    for beginning, signature in found[: max(0, NEAR - len(refused))]:
        if beginning:
            yield {"signature": signature.id, "where": signature.where, "refused_by": None, "matches_up_to": beginning}


def _holds(run: Run, path: str, number: int) -> bool:
    lines = [event.line for event in run.printed if event.source == path]
    return bool(lines) and min(lines) <= number <= max(lines)


def _speaker(diagnosis: Findings, kept: list[Event], peeled: Peeled, run: Run | None) -> dict[str, Any]:
    """Return who printed the line: what its prefixes say, and the rank and host that the whole input gives it."""
    context = kept[0].context if kept else peeled.context
    found = {name: value for name in _CONTEXT if (value := getattr(context, name)) is not None}
    if kept and run is not None:
        rank, host = run.identity.rank_of(kept[0]), run.identity.host_of(kept[0])
        found |= {name: value for name, value in (("rank", rank), ("host", host)) if value is not None}
    return found


def _evidence(diagnosis: Findings, path: str, number: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of evidence that rest on the line."""
    for candidate in diagnosis.candidates:
        for item in candidate.weighed.contributions:
            if any(event.source == path and _covers(event, number) for event in item.events):
                yield {"cause": candidate.id, **trace.row(diagnosis.case, item)}
