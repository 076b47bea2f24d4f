"""The story as data: runs, each with its events, its outcome and the lines that do not count for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from nccl_triage.observations.event import Event
from nccl_triage.story.devices import Devices
from nccl_triage.story.identity import Identity

#: How a run ended: finished, goes on to the end of the input, told to stop, failed, hangs, the input ends before, no job.
State = Literal["finished", "running", "stopped", "failed", "hung", "cut", "none"]
#: A line that does not count, and the reason.
Aside = tuple[Event, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and the line that says so (None where it follows from what no line says)."""

    state: State
    event: Event | None = None

    @property
    def is_well(self) -> bool:
        """Whether the run finished or goes on."""
        return self.state in ("finished", "running")

    @property
    def is_bad(self) -> bool:
        """Whether the run came to a bad end."""
        return self.state in ("stopped", "failed", "hung")


@dataclass
class Run:
    """One run of a job: its events in order that count, who is who in it, and how it ended."""

    events: list[Event]
    identity: Identity
    outcome: Outcome
    #: Lines of the run that do not count, with the reason.
    aside: list[Aside] = field(default_factory=list)
    #: Everything that the run printed, before anything was set aside.
    printed: list[Event] = field(default_factory=list)
    #: The line with which it begins, None for the first one of the input.
    opened_by: Event | None = None

    @cached_property
    def devices(self) -> Devices:
        """Whose GPUs and processes the lines of hosts speak of."""
        return Devices(self.identity, self.printed)


@dataclass(slots=True)
class Story:
    """What happened: every run, and the one that the verdict is about."""

    runs: list[Run]
    told: Run
    order_known: bool
    #: What is known of earlier jobs: it has no place among the lines of this one.
    remembered: list[Event] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        """How the run ended that the verdict is about."""
        return self.told.outcome
