"""What the classifier sees of a case: words of its salient lines, signatures with their order, shapes of the facts.

A feature is a string; its first part tells the kind:

- ``w:`` a word of a salient line (failure lines, exceptions, unknown lines that sound like trouble), normalised by
  ``parsers.templates``, and each part of a name made of several (``ibv_reg_mr``, ``RegisterMemory``), since programs
  that nobody knew yet share the parts and not the names;
- ``p:`` a word of a salient line that stands before the first line of a cascade;
- ``s:`` a signature seen, ``r:`` the first signature of role root, ``q:`` a signature of a failure before the cascade;
- ``e:`` the type of the first exception, ``l:`` that of the last one;
- ``f:`` a derived fact with the coarse shape of its value (none, some, one, few, many), never a value of this one job;
- ``j:`` launcher and framework.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.diagnosis import programs
from nccl_triage.diagnosis.case import Case, fact_names
from nccl_triage.events import Event
from nccl_triage.parsers import templates
from nccl_triage.parsers.salient import SALIENT
from nccl_triage.parsers.templates import words
from nccl_triage.parsers.tracebacks import TRACEBACK

#: What parts the words of a name, and the words of a name that is written in one with capitals.
_SEAMS, _CAPITALS = re.compile(r"[._=-]+"), re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LETTERS = re.compile(r"[A-Za-z]+")
#: Characters of a part that says something.
_MIN_PART = 3
#: Distinct lines (by template) whose words count: half of them from each end.
MAX_LINES = 120
#: Facts whose value says what kind of failure it was in itself, so that the value may be a feature.
_NAMED_VALUES = ("collective.op", "progress.phase", "process.first_exit_code", "exception.application")
#: Facts that hold texts or numbers of one job alone.
_LEFT_OUT = (
    "batch.numbers", "batch.valid_sizes", "collective.numel", "collective.seq", "collective.stuck", "collective.timeout_ms",
    "exception.frames", "exception.message", "exception.user_frame", "job.clockless", "job.environment", "job.filtered", "job.launch_world",
    "job.nccl_versions", "job.ranks_seen", "job.versions", "job.world_size", "network.target",
)  # fmt: skip


@dataclass(slots=True)
class Features:
    """The features of one case, and the events that made each of them (for the explanation of a vote)."""

    names: set[str] = field(default_factory=set)
    spoke: dict[str, Event] = field(default_factory=dict)

    def add(self, name: str, event: Event | None = None) -> None:
        """Note a feature and the first event that made it."""
        self.names.add(name)
        if event is not None:
            self.spoke.setdefault(name, event)


def extract(case: Case) -> Features:
    """Return the features of a case."""
    found = Features()
    cascade = _first_cascade(case)
    _lines(case, cascade, found)
    _signatures(case, cascade, found)
    _facts(case, found)
    launcher = programs.launcher(case)
    if launcher is not None:
        found.add(f"j:{launcher}")
    for name in programs.frameworks(case):
        found.add(f"j:{name}")
    return found


def words_of(message: str) -> Iterator[str]:
    """Yield the features of kind ``w:`` and ``p:`` of one message that stands alone."""
    for word in _spoken(templates.template(message), message):
        yield f"w:{word}"
        yield f"p:{word}"


def _spoken(folded: str, text: str) -> Iterator[str]:
    """Yield the words of a message, given as its template and as it is, and the parts of the names in it."""
    whole = words(folded)
    yield from whole
    for word in whole:
        parts = _SEAMS.split(word)
        if len(parts) > 1:
            yield from (part for part in parts if len(part) >= _MIN_PART)
    for name in _LETTERS.findall(text[: templates.MAX_MESSAGE]):
        parts = _CAPITALS.findall(name)
        if len(parts) > 1:
            yield from (part.lower() for part in parts if len(part) >= _MIN_PART)


def _message(event: Event) -> str:
    if event.signature == SALIENT:
        return event.fields["template"]
    return templates.template(event.text)


def _salient(case: Case) -> list[tuple[Event, str]]:
    """Return the distinct salient lines in order, the middle of very many left out."""
    seen: set[str] = set()
    keys: set[tuple[object, ...]] = set()
    lines: list[tuple[Event, str]] = []
    for event in case.events:
        if event.is_failure or event.signature == SALIENT:
            if event.signature != SALIENT:
                key = templates.key(event.text)
                if key in keys:
                    continue
                keys.add(key)
            folded = _message(event)
            if folded not in seen:
                seen.add(folded)
                lines.append((event, folded))
    if len(lines) <= MAX_LINES:
        return lines
    half = MAX_LINES // 2
    return [*lines[:half], *lines[-half:]]


def _first_cascade(case: Case) -> int | None:
    return next(
        (case.position(e) for e in case.events if e.role == "cascade" and not e.signature.startswith("python.")), None
    )


def _lines(case: Case, cascade: int | None, found: Features) -> None:
    for event, folded in _salient(case):
        before = cascade is None or case.position(event) < cascade
        for word in _spoken(folded, event.text):
            found.add(f"w:{word}", event)
            if before:
                found.add(f"p:{word}", event)


def _signatures(case: Case, cascade: int | None, found: Features) -> None:
    root_seen = False
    for event in case.events:
        name = event.signature
        if name.startswith(("line.", "baseline.")):
            continue  # a good run to compare with is known of few cases
        if event.role == "root" and not root_seen:
            root_seen = True
            found.add(f"r:{name}", event)
        found.add(f"s:{name}", event)
        if event.is_failure and cascade is not None and case.position(event) < cascade:
            found.add(f"q:{name}", event)
    exceptions = case.of(TRACEBACK)
    if exceptions:
        found.add(f"e:{exceptions[0].fields.get('type')}", exceptions[0])
        found.add(f"l:{exceptions[-1].fields.get('last_type')}", exceptions[-1])


def _facts(case: Case, found: Features) -> None:
    for name in fact_names():
        if name in _LEFT_OUT:
            continue
        fact = case.fact(name)
        if fact is None:
            continue
        event = fact.events[0] if fact.events else None
        if name in _NAMED_VALUES:
            found.add(f"f:{name}={fact.value}", event)
        shape = _shape(fact.value)
        if shape is not None:
            found.add(f"f:{name}:{shape}", event)


def _shape(value: Any) -> str | None:
    """Return the coarse shape of a fact's value, or None for one that says nothing."""
    if value is None or value is False or value == 0 or value == "":
        return None
    if value is True or isinstance(value, str):
        return "yes"
    if isinstance(value, (int, float)):
        return _amount(value)
    if isinstance(value, (list, tuple, set, dict)):
        return _amount(len(value)) if value else None
    return "yes"


def _amount(number: float) -> str:
    if number < 0:
        return "negative"
    return "one" if number <= 1 else ("few" if number <= 8 else "many")


def top_lines(found: Features, names: Sequence[str], limit: int = 3) -> list[Event]:
    """Return the distinct events behind the named features, in the order of the names."""
    lines: dict[int, Event] = {}
    for name in names:
        event = found.spoke.get(name)
        if event is not None:
            lines.setdefault(id(event), event)
        if len(lines) >= limit:
            break
    return list(lines.values())
