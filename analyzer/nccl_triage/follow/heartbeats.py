"""Heartbeats of a running job: the last line and step of every process, and the usual duration of a step.

Times are seconds of our own clock, passed in by the caller, since the clocks of the hosts may differ. Only the duration
of a step is taken from the timestamps of its lines, where they have them: output may arrive in bursts.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from nccl_triage.observations.event import Event

#: Kinds of lines that come with every step of a training loop. A server is silent when it gets no requests.
STEPS = ("step", "progress.bar", "collective.entered")
#: The most processes that are told apart.
MAX_PROCESSES = 20_000
#: How many durations of steps, and gaps between them, are remembered.
_MEMORY, _PAUSES = 255, 64


@dataclass(slots=True)
class ProcessHeartbeat:
    """The last line of a process, and its last step."""

    last: Event
    heard: float
    part: int = 0
    step: Event | None = None
    advanced: float = 0.0


@dataclass(slots=True)
class _StepHeartbeat:
    """The last step of one kind in one process."""

    event: Event
    part: int
    came: float | None = None
    number: int = 0
    #: Steps of this round, and those of them whose duration no timestamp tells.
    fresh: int = 0
    unstamped: int = 0


@dataclass(slots=True)
class Heartbeats:
    """The heartbeats of all processes so far."""

    processes: dict[Hashable, ProcessHeartbeat] = field(default_factory=dict)
    #: When the last step of any process arrived.
    advanced: float | None = None
    #: Since the last step: the line that announced a long pause, and whether the job said that it was done.
    pause: Event | None = None
    done: bool = False
    #: The most steps of one kind that one process has printed.
    steps: int = 0
    _steps: dict[Hashable, _StepHeartbeat] = field(default_factory=dict)
    _fresh: set[Hashable] = field(default_factory=set)
    _durations: deque[float] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    _gaps: deque[float] = field(default_factory=lambda: deque(maxlen=_PAUSES))

    def note(self, event: Event, now: float, part: int = 0) -> None:
        """Take an event, perhaps repeatedly; ``part`` counts the files that have had the source's name."""
        key = (event.source, *event.context.process_key())
        process = self.processes.get(key)
        if process is None:
            if len(self.processes) >= MAX_PROCESSES:
                return
            process = self.processes[key] = ProcessHeartbeat(event, now, part)
        elif _later(event, part, process.last, process.part):
            process.last, process.heard, process.part = event, now, part
        if event.kind == "task.started":
            self.pause = event
        elif event.kind == "job.finished":
            self.done = True
        elif event.kind in STEPS:
            self._step(key, process, event, now, part)

    def forget(self, source: str) -> None:
        """Forget the processes of a source that is read again: its lines may now belong to others."""
        self.processes = {key: process for key, process in self.processes.items() if process.last.source != source}
        self._steps = {place: beat for place, beat in self._steps.items() if beat.event.source != source}

    def tick(self, now: float, live: bool) -> None:
        """End a round of reading; ``live`` is false for lines that were there before following began."""
        if not self._fresh:
            return
        if live and self.advanced is not None:
            self._gaps.append(max(0.0, now - self.advanced))
        self.advanced = now if self.advanced is None else max(now, self.advanced)
        for key in self._fresh & self._steps.keys():
            beat = self._steps[key]
            if live and beat.came is not None and beat.unstamped:
                self._durations.append(max(0.0, now - beat.came) / beat.fresh)
            beat.came, beat.fresh, beat.unstamped = now, 0, 0
        self._fresh.clear()

    @property
    def usual(self) -> float | None:
        """The usual seconds of a step, None while they are unknown."""
        return statistics.median(self._durations) if self._durations else None

    @property
    def longest(self) -> float:
        """The longest time without a step after which the job went on."""
        return max(self._gaps, default=0.0)

    def _step(self, key: Hashable, process: ProcessHeartbeat, event: Event, now: float, part: int) -> None:
        place = (key, event.signature)
        beat = self._steps.get(place)
        if beat is None:
            beat = self._steps[place] = _StepHeartbeat(event, part)
        elif not _later(event, part, beat.event, beat.part):
            return
        duration = _between(beat.event, event)
        if beat.number and duration is not None and duration >= 0:
            self._durations.append(duration)
        beat.unstamped += duration is None
        beat.event, beat.part = event, part
        beat.number += 1
        beat.fresh += 1
        self._fresh.add(place)
        self.steps = max(self.steps, beat.number)
        process.step, process.advanced = event, now
        self.pause, self.done = None, _is_last(event)


def _later(one: Event, part: int, other: Event, other_part: int) -> bool:
    """Tell whether an event is newer, or another state of the same redrawn line."""
    place, known = (part, one.line), (other_part, other.line)
    return place > known or (place == known and one.text != other.text)


def _between(one: Event, two: Event) -> float | None:
    first, second = one.context.time, two.context.time
    return second - first if first is not None and second is not None else None


def _is_last(event: Event) -> bool:
    """Tell whether a step counter has reached its total, after which other work may follow."""
    step, total = event.number("step"), event.number("total")
    return step is not None and total is not None and step >= total
