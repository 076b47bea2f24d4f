"""A difference between two runs, and the event that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field

from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.kinds import Produced

#: Paths of the good run's logs that are named.
MAX_NAMED = 4
#: Fields of every difference, those of one that has a value in both runs, and those of one that a line of the good run tells.
_EVERY = ("name", "change")
_BOTH, _PLACE = (*_EVERY, "good", "bad"), ("good_path", "good_line")
#: Signature -> kind, meaning and fields of its events, those that say most first.
PRODUCES: dict[str, Produced] = {
    "baseline.compared": Produced(
        "recall",
        "The run was compared with a good one.",
        ("state", "verdict", "logs"),
        ("cause", *(f"good_{number}" for number in range(MAX_NAMED))),
    ),
    "baseline.divergence": Produced(
        "recall",
        "The first line without a counterpart in the good run, and its stage.",
        (*_EVERY, "bad"),
        ("good", *_PLACE),
    ),
    "baseline.variable": Produced(
        "recall",
        "An environment variable that the good run did not have, or had with another value.",
        _EVERY,
        ("good", "bad", *_PLACE),
    ),
    "baseline.version": Produced("recall", "A different version than in the good run.", _BOTH, _PLACE),
    "baseline.interface": Produced(
        "recall", "Different network interfaces or adapters than in the good run.", _BOTH, _PLACE
    ),
    "baseline.transport": Produced(
        "recall",
        "Ranks use a different transport than in the good run.",
        (*_BOTH, "pairs", "first_pair"),
        _PLACE,
    ),
    "baseline.world": Produced(
        "recall", "A different number of ranks, hosts or ranks per host than in the good run.", _BOTH, _PLACE
    ),
    "baseline.topology": Produced(
        "recall",
        "NCCL found a different topology than in the good run: channels, multicast, direct memory access.",
        _BOTH,
        _PLACE,
    ),
    "baseline.algorithm": Produced(
        "recall", "NCCL chose an algorithm or a protocol that the good run did not use.", _BOTH, _PLACE
    ),
    "baseline.pace": Produced("recall", "Steps are slower than in the good run.", (*_BOTH, "ratio"), _PLACE),
    "baseline.message": Produced(
        "recall", "A warning or an error that the good run never printed.", (*_EVERY, "bad", "when"), _PLACE
    ),
}
#: Characters of a value.
MAX_VALUE = 200
#: What stands for a side that has no value.
NOTHING = "-"


@dataclass(frozen=True, slots=True)
class RunDifference:
    """A difference: the value of the good run (None for none), that of the bad run, and the lines of both.

    ``at`` is the line of the bad run; where something is missing there, the nearest line of its kind.
    """

    subject: str
    name: str
    good: str | None
    bad: str | None
    at: Event
    good_at: tuple[str, int] | None = None
    further: dict[str, str] = field(default_factory=dict)
    #: The bad run's own line instead of the two values.
    line: str | None = None
    #: Where the difference is that of one host among several.
    host: str | None = None

    @property
    def change(self) -> str:
        """``added``, ``removed`` or ``changed``."""
        return "added" if self.good is None else "removed" if self.bad is None else "changed"

    def event(self) -> Event:
        """Return the event; it belongs to the run as a whole, or to a host, so it names no rank."""
        fields = {"name": self.name, "change": self.change, **self.further}
        for key, value in (("good", self.good), ("bad", self.bad)):
            if value is not None:
                fields[key] = value[:MAX_VALUE]
        place = ""
        if self.good_at is not None:
            fields |= {"good_path": self.good_at[0], "good_line": str(self.good_at[1])}
            place = f" ({self.good_at[0]}:{self.good_at[1]})"
        shown = [NOTHING if value is None else value[:MAX_VALUE] for value in (self.good, self.bad)]
        text = self.line or f"[{self.name}: {shown[0]}{place} -> {shown[1]}]"
        return Event(
            f"baseline.{self.subject}", self.at.source, self.at.line, text, Context(host=self.host, time=self.at.context.time),
            "context", fields,
        )  # fmt: skip


def place(event: Event | None) -> tuple[str, int] | None:
    """Return the source and line of an event."""
    return None if event is None else (event.source, event.line)
