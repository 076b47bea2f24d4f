"""What the vote for a cause sees of a run: the words of the lines that tell most of it.

What a log says elsewhere is mostly the same for all causes, and rules have scored what they know of it: a vote that
restates signatures or facts would count them twice. A feature is a string; its first part tells the kind:

- ``w:`` a word of a telling line, normalised by ``parsers.templates``, and each part of a name made of several
  (``ibv_reg_mr``, ``RegisterMemory``), since programs that nobody knew yet share the parts and not the names;
- ``p:`` a word of the line that tells most;
- ``s:`` a signature of a telling line, which is never learnt: it tells which samples would reveal the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nccl_triage.observations.event import Event
from nccl_triage.parsers import templates

#: Lines whose words count.
LINES = 3
#: The kind of features that are never learnt.
NEVER_LEARNT = "s:"


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


def extract(lines: Sequence[Event]) -> Features:
    """Return the features of the most telling lines of a run, the one that tells most first."""
    found = Features()
    for number, event in enumerate(lines[:LINES]):
        found.add(f"{NEVER_LEARNT}{event.signature}", event)
        for word in templates.spoken(event.text):
            found.add(f"w:{word}", event)
            if number == 0:
                found.add(f"p:{word}", event)
    return found


def words_of(message: str) -> Iterator[str]:
    """Yield the features of one message that stands alone."""
    for word in templates.spoken(message):
        yield f"w:{word}"
        yield f"p:{word}"


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
