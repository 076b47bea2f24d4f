"""The lines of the log that a report shows: evidence, symptoms, timeline and excerpts; and evidence that is missing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from nccl_triage.diagnosis import placeholders
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.diagnosis.weigh import Contribution, Weighed
from nccl_triage.document import incident, telling_lines
from nccl_triage.engine.schema import WEIGHTS, MissingEvidence
from nccl_triage.observations.event import Event
from nccl_triage.parsers import times
from nccl_triage.producers import produced_signatures
from nccl_triage.redaction.secrets import mask_text
from nccl_triage.story.other_programs import instead_of_log

#: Lines of evidence per item, per cause, and timeline entries kept.
PER_ITEM, PER_CAUSE, TIMELINE = 3, 14, 200
_TEXT = 1000


def pair(name: str, text: dict[str, str]) -> dict[str, str]:
    """Return a text in both languages as two keys of a document."""
    return {name: text["en"], f"{name}_zh": text["zh"]}


def optional_pair(name: str, text: dict[str, str] | None) -> dict[str, str | None]:
    """Return a text in both languages as two keys of a document, both null where there is none."""
    return {name: text["en"] if text else None, f"{name}_zh": text["zh"] if text else None}


def ordered_evidence(weighed: Weighed) -> list[tuple[Contribution, Event]]:
    """Return the lines that speak for a cause, the most telling first, each line once; the vote rests on no line."""
    items = sorted(
        enumerate(weighed.rule_items),
        key=lambda pair: (-abs(pair[1].applied), -WEIGHTS[pair[1].evidence.weight], pair[0]),
    )
    found: list[tuple[Contribution, Event]] = []
    seen: set[tuple[str, int]] = set()
    for depth in range(PER_ITEM):
        for _, item in items:
            events = sorted(item.events, key=lambda e: e.role != "root") if depth == 0 else item.events
            fresh = [e for e in events if (e.source, e.line) not in seen]
            if fresh:
                seen.add((fresh[0].source, fresh[0].line))
                found.append((item, fresh[0]))
    return found[:PER_CAUSE]


def evidence_line(case: Case, item: Contribution, event: Event) -> dict[str, Any]:
    """Return a line of the log as evidence: where it stands, who printed it, and what it says."""
    says = placeholders.fill_both(item.evidence.says, case, item.events)
    return {
        **location(event),
        "end_line": event.last_line,
        "time": time_of(event),
        "rank": case.rank(event),
        "host": case.host(event),
        "signature": event.signature,
        "text": event.text if len(event.text) <= _TEXT else mask_text(event.text)[:_TEXT],
        **pair("says", says),
        "weight": item.evidence.weight,
    }


def location(event: Event) -> dict[str, Any]:
    """Return where a line stands."""
    return {"path": event.source, "line": event.line}


def time_of(event: Event) -> str | None:
    """Return the time of a line as text, None where it has none."""
    return times.show(event.context.time) if event.context.time is not None else None


def _meaning(case: Case, signature: str) -> str:
    known = case.rules.signatures.get(signature) or produced_signatures().get(signature)
    return known.meaning if known is not None else ""


def symptoms(case: Case) -> list[dict[str, Any]]:
    """Return the signatures that speak of a failure, each with its first and last line."""
    found: list[dict[str, Any]] = []
    for signature in case.observations.signatures():
        events = case.of(signature)
        if not events or not events[0].is_failure:
            continue
        found.append(
            {
                "signature": signature,
                "role": events[0].role,
                "meaning": _meaning(case, signature),
                "count": case.observations.count(signature),
                "ranks": case.ranks(events),
                "first": location(events[0]),
                "last": location(events[-1]),
            }
        )
    found.sort(key=lambda s: (s["role"] != "root", s["first"]["path"], s["first"]["line"]))
    return found


def timeline(case: Case) -> list[dict[str, Any]]:
    """Return the salient events: every root and cascade signature's first per rank, and the last progress before.

    Of too many, the late failures go, and the progress of the ranks between the first and the last to go quiet.
    """
    chosen: dict[tuple[str, int | None], Event] = {}
    per_signature: Counter[str] = Counter()
    progress: dict[int | None, Event] = {}
    for event in case.events:
        rank = case.rank(event)
        if event.role == "progress":
            progress[rank] = event
        elif event.is_failure:
            key = (event.signature, rank)
            if key not in chosen and per_signature[event.signature] < 24:
                chosen[key] = event
                per_signature[event.signature] += 1
    quiet = sorted(progress.values(), key=case.position)
    room = TIMELINE - min(len(quiet), TIMELINE // 4)
    failures = sorted(chosen.values(), key=case.position)[:room]
    early = (TIMELINE - len(failures)) // 4
    late = max(early, len(quiet) - (TIMELINE - len(failures) - early))
    picked = sorted([*failures, *quiet[:early], *quiet[late:]], key=case.position)
    return [
        {
            "order": index,
            "time": time_of(event),
            "rank": case.rank(event),
            "host": case.host(event),
            "signature": event.signature,
            "role": event.role,
            **location(event),
            "text": event.text[:300],
            "meaning": _meaning(case, event.signature),
        }
        for index, event in enumerate(picked)
    ]


#: Maximum number of excerpted lines.
MAX_WINDOWS = 24


def _shown(diagnosis: Findings) -> Iterator[Event]:
    """Yield the lines that the reader should see: evidence, the first fault, and those that tell most."""
    for candidate in diagnosis.candidates[:2]:
        for item in candidate.weighed.for_items:
            yield from item.events[:4]
    fault = incident.first_fault(diagnosis)
    if fault is not None:
        yield fault
    yield from telling_lines.events(diagnosis)


def excerpt_lines(diagnosis: Findings) -> dict[str, list[int]]:
    """Return the numbers of the lines to excerpt, sorted, by source."""
    marks: dict[str, list[int]] = defaultdict(list)
    count = 0
    for event in _shown(diagnosis):
        if not event.is_remembered and event.line not in marks[event.source] and count < MAX_WINDOWS:
            marks[event.source].append(event.line)
            count += 1
    return {path: sorted(lines) for path, lines in marks.items() if lines}


#: Number of candidates whose families decide which missing evidence matters.
_LEADING = 3


def missing(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return the evidence that is missing, each piece with what it would show and how to have it next time."""
    if diagnosis.verdict == "healthy" or instead_of_log(diagnosis.case.observations) is not None:
        return []
    families = {candidate.weighed.cause.family for candidate in diagnosis.candidates[:_LEADING]}
    conditions = Conditions(diagnosis.case)
    words = placeholders.command_words(diagnosis.case, ())

    def lacks(item: MissingEvidence) -> bool:
        matters = not item.families or not families or bool(families & set(item.families))
        return matters and conditions.holds(item.when)[0]

    return [
        {
            "id": item.id,
            "what": item.what["en"],
            "what_zh": item.what["zh"],
            "why": item.why["en"],
            "why_zh": item.why["zh"],
            "env": dict(item.env),
            "commands": [placeholders.fill_words(command, words) for command in item.commands],
        }
        for item in diagnosis.case.rules.missing_evidence.values()
        if lacks(item)
    ]
