"""What is compared of two runs: words of their salient lines, and signatures with their order.

Of failures only those of the suspect count, the rank that is the first to fail by itself: what its victims print says
little of the cause (where nobody is suspected, all count). Facts are left out: they say what a cause is, not
what its incidents look like.

A feature is a string; its first part tells the kind:

- ``w:`` a word of a salient line (failure lines, exceptions, unknown lines that sound like trouble), normalised by
  ``parsers.templates``, and each part of a name made of several (``ibv_reg_mr``, ``RegisterMemory``), since programs
  that nobody knew yet share the parts and not the names;
- ``p:`` a word of a salient line that stands before the first line of a cascade;
- ``s:`` a signature seen, ``r:`` the first signature of role root, ``q:`` a signature of a failure before the cascade;
- ``e:`` the type of the first exception, ``l:`` that of the last one;
- ``j:`` launcher and framework.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nccl_triage.observations.event import Event
from nccl_triage.parsers import templates
from nccl_triage.parsers.tracebacks import TRACEBACK
from nccl_triage.parsers.unknown_errors import SALIENT
from nccl_triage.story.view import View

#: Distinct lines (by template) whose words count: half of them from each end.
MAX_LINES = 120


def extract(case: View, programs: Iterable[str]) -> set[str]:
    """Return the features of a case; ``programs`` are its launcher and frameworks."""
    found: set[str] = set()
    events = _of_suspect(case)
    cascade = next(
        (case.position(e) for e in events if e.role == "cascade" and not e.signature.startswith("python.")), None
    )
    _lines(case, events, cascade, found)
    _signatures(case, events, cascade, found)
    for name in programs:
        found.add(f"j:{name}")
    return found


def _of_suspect(case: View) -> list[Event]:
    """Return the events in order, without the failures of ranks other than the suspect."""
    ranks = (rank for event in case.failures if event.role == "root" and (rank := case.rank(event)) is not None)
    suspect = next(ranks, None)
    if suspect is None:
        return case.events
    return [event for event in case.events if not _is_trouble(event) or case.rank(event) == suspect]


def _is_trouble(event: Event) -> bool:
    return event.is_failure or event.signature == SALIENT


def _message(event: Event) -> str:
    if event.signature == SALIENT:
        return event.fields["template"]
    return templates.template(event.text)


def _salient(events: Sequence[Event]) -> list[tuple[Event, str]]:
    """Return the distinct salient lines in order, the middle of very many left out."""
    seen: set[str] = set()
    keys: set[tuple[object, ...]] = set()
    lines: list[tuple[Event, str]] = []
    for event in events:
        if _is_trouble(event):
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


def _lines(case: View, events: Sequence[Event], cascade: int | None, found: set[str]) -> None:
    for event, _ in _salient(events):
        before = cascade is None or case.position(event) < cascade
        for word in templates.spoken(event.text):
            found.add(f"w:{word}")
            if before:
                found.add(f"p:{word}")


def _signatures(case: View, events: Sequence[Event], cascade: int | None, found: set[str]) -> None:
    root_seen = False
    for event in events:
        name = event.signature
        if name.startswith(("line.", "baseline.")):
            continue  # a good run to compare with is known of few cases
        if event.role == "root" and not root_seen:
            root_seen = True
            found.add(f"r:{name}")
        found.add(f"s:{name}")
        if event.is_failure and cascade is not None and case.position(event) < cascade:
            found.add(f"q:{name}")
    exceptions = [event for event in events if event.signature == TRACEBACK]
    if exceptions:
        found.add(f"e:{exceptions[0].fields.get('type')}")
        found.add(f"l:{exceptions[-1].fields.get('last_type')}")
