"""The incident in phrases: when it started, what it cost, and its story in a few steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nccl_triage.render.words import Document, Lang, culprit_name, word

#: Unit -> seconds, the largest first.
_UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))


def duration(seconds: float, lang: Lang) -> str:
    """Return a span in its two largest units, as ``1 h 5 min``."""
    left = round(seconds)
    if left < 1:
        return word("under_a_second", lang)
    parts: list[str] = []
    for name, size in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append(word(f"span_{name}", lang).format(n=number) if number else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def started(document: Document, lang: Lang) -> str:
    """Return when the failure started, or nothing where no line tells."""
    found = document.get("incident") or {}
    if not found.get("started"):
        return ""
    return word("started_about" if found.get("about") else "started_at", lang).format(time=found["started"])


def _hours(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 1 else f"{number:.2f}"


def cost(document: Document, lang: Lang) -> str:
    """Return how long it lasted and how many rank-hours that is, or nothing where no line tells."""
    found = document.get("incident") or {}
    seconds, ranks, hours = (found.get(key) for key in ("seconds", "ranks", "rank_hours"))
    if not isinstance(seconds, (int, float)):
        return ""
    span = duration(seconds, lang)
    if not ranks or not isinstance(hours, (int, float)):
        return word("lasted", lang).format(span=span)
    key = "cost_at_least" if found.get("at_least") else "cost"
    return word(key, lang).format(span=span, ranks=ranks, hours=_hours(hours))


#: The order of the story where the others began to wait only after the fault.
_FAULT_FIRST = ("story_progress", "story_fault", "story_sign", "story_waiting", "story_consequence", "story_end")


@dataclass(frozen=True)
class Step:
    """One step of the story: a word for what it is, who and when, and the line that shows it."""

    key: str
    point: Mapping[str, Any]


def story(document: Document) -> list[Step]:
    """Return the steps from the last progress to the end, each with its line; steps of one line are told once."""
    found = document.get("incident") or {}
    fault = found.get("first_fault") or {}
    cascade = next(
        (
            event
            for event in document.get("timeline") or []
            if event.get("role") == "cascade" and not _same(event, fault) and not _before(event, fault, document)
        ),
        None,
    )
    steps = [
        Step("story_progress", found.get("last_progress") or {}),
        Step("story_waiting", found.get("waiting_since") or {}),
        Step("story_sign" if fault.get("role") == "cascade" else "story_fault", fault),
        Step("story_consequence", cascade or {}),
        Step("story_end", found.get("end") or {}),
    ]
    told: list[Step] = []
    for step in steps:
        point = step.point
        repeated = any(_same(point, other.point) for other in told) and step.key == "story_end"
        if point and not repeated:
            told.append(step)
    if _later(told, "story_waiting", "story_fault") or _later(told, "story_waiting", "story_sign"):
        told.sort(key=lambda step: _FAULT_FIRST.index(step.key))
    return told


def _same(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    return (one.get("path"), one.get("line")) == (two.get("path"), two.get("line"))


def _before(event: Mapping[str, Any], fault: Mapping[str, Any], document: Document) -> bool:
    """Tell whether an event stands before the fault in the order of the timeline."""
    places = {(e.get("path"), e.get("line")): i for i, e in enumerate(document.get("timeline") or [])}
    at = places.get((fault.get("path"), fault.get("line")))
    return at is not None and places[event.get("path"), event.get("line")] < at


def _later(steps: list[Step], one: str, two: str) -> bool:
    """Tell whether step ``one`` has a printed time after that of step ``two``."""
    times = {step.key: step.point.get("time") for step in steps}
    first, second = times.get(one), times.get(two)
    return bool(first and second and str(first) > str(second))


def who(point: Mapping[str, Any], lang: Lang) -> str:
    """Return the rank and host of a step, or nothing where the line names none."""
    if point.get("rank") is None and not point.get("host"):
        return ""
    return culprit_name({"rank": point.get("rank"), "host": point.get("host")}, lang)
