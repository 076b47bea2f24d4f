"""What the classifier sees of a run: words of its salient lines, and signatures with their order.

Of failures only those of the suspect count, the rank that is the first to fail by itself: what its victims print says
little of the cause (where nobody is suspected, all count). Facts are left out: the rules have scored them, and a vote
that restates them would count them twice.

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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.parsers import templates
from nccl_triage.parsers.templates import words
from nccl_triage.parsers.tracebacks import TRACEBACK
from nccl_triage.parsers.unknown_errors import SALIENT
from nccl_triage.story.view import View

#: What parts the words of a name, and the words of a name that is written in one with capitals.
_SEAMS, _CAPITALS = lazily(r"[._=-]+"), lazily(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LETTERS = lazily(r"[A-Za-z]+")
#: Minimum length of a part.
_MIN_PART = 3
#: Distinct lines (by template) whose words count: half of them from each end.
MAX_LINES = 120


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


def extract(case: View, programs: Iterable[str]) -> Features:
    """Return the features of a case; ``programs`` are its launcher and frameworks."""
    found = Features()
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


def _lines(case: View, events: Sequence[Event], cascade: int | None, found: Features) -> None:
    for event, folded in _salient(events):
        before = cascade is None or case.position(event) < cascade
        for word in _spoken(folded, event.text):
            found.add(f"w:{word}", event)
            if before:
                found.add(f"p:{word}", event)


def _signatures(case: View, events: Sequence[Event], cascade: int | None, found: Features) -> None:
    root_seen = False
    for event in events:
        name = event.signature
        if name.startswith(("line.", "baseline.")):
            continue  # a good run to compare with is known of few cases
        if event.role == "root" and not root_seen:
            root_seen = True
            found.add(f"r:{name}", event)
        found.add(f"s:{name}", event)
        if event.is_failure and cascade is not None and case.position(event) < cascade:
            found.add(f"q:{name}", event)
    exceptions = [event for event in events if event.signature == TRACEBACK]
    if exceptions:
        found.add(f"e:{exceptions[0].fields.get('type')}", exceptions[0])
        found.add(f"l:{exceptions[-1].fields.get('last_type')}", exceptions[-1])


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
