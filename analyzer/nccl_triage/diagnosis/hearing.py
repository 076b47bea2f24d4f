"""Who was heard when, while a job runs: the last words of every process, and how long its steps usually take.

Times are seconds of our own clock, given by whoever listens, since the clocks that stamp the lines are others. Only how
long a step took is taken from stamps where two of them tell it: what a program prints may reach us in bursts.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from nccl_triage.observations.event import Event

#: Kinds of lines that come with every step of a training loop. What serves requests is silent when nobody asks.
STEPS = ("step", "progress.bar", "collective.entered")
#: Processes, and kinds of steps of each, that are told apart.
MAX_VOICES = 20_000
#: Durations of steps, and pauses between them, that are remembered.
_MEMORY, _PAUSES = 255, 64


@dataclass(slots=True)
class Voice:
    """A process: what it printed last, and its last step."""

    last: Event
    heard: float
    part: int = 0
    step: Event | None = None
    advanced: float = 0.0


@dataclass(slots=True)
class _Beat:
    """One kind of step of one process."""

    event: Event
    part: int
    came: float | None = None
    number: int = 0
    #: Those of this round, and of them those of which no stamp tells how long they took.
    fresh: int = 0
    unstamped: int = 0


@dataclass(slots=True)
class Hearing:
    """What was heard so far."""

    voices: dict[Hashable, Voice] = field(default_factory=dict)
    #: When a step of any process was heard last.
    advanced: float | None = None
    #: The last line that announced a long silence, and whether the job said that it was done, after the last step.
    pause: Event | None = None
    done: bool = False
    #: The most steps of one kind that one process has printed.
    steps: int = 0
    _beats: dict[Hashable, _Beat] = field(default_factory=dict)
    _fresh: set[Hashable] = field(default_factory=set)
    _durations: deque[float] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    _gaps: deque[float] = field(default_factory=lambda: deque(maxlen=_PAUSES))

    def note(self, event: Event, now: float, part: int = 0) -> None:
        """Take an event, which may have been told before; ``part`` counts the files that bore the source's name."""
        key = (event.source, *event.context.process_key())
        voice = self.voices.get(key)
        if voice is None:
            if len(self.voices) >= MAX_VOICES:
                return
            voice = self.voices[key] = Voice(event, now, part)
        elif _later(event, part, voice.last, voice.part):
            voice.last, voice.heard, voice.part = event, now, part
        if event.kind == "task.started":
            self.pause = event
        elif event.kind == "job.finished":
            self.done = True
        elif event.kind in STEPS:
            self._step(key, voice, event, now, part)

    def forget(self, source: str) -> None:
        """Forget who was heard in a source: it is read again, and its lines may be those of others."""
        self.voices = {key: voice for key, voice in self.voices.items() if voice.last.source != source}
        self._beats = {place: beat for place, beat in self._beats.items() if beat.event.source != source}

    def tick(self, now: float, live: bool) -> None:
        """End a round: what came in one round came together; not ``live``: it lay there already."""
        if not self._fresh:
            return
        if live and self.advanced is not None:
            self._gaps.append(max(0.0, now - self.advanced))
        self.advanced = now if self.advanced is None else max(now, self.advanced)
        for key in self._fresh & self._beats.keys():
            beat = self._beats[key]
            if live and beat.came is not None and beat.unstamped:
                self._durations.append(max(0.0, now - beat.came) / beat.fresh)
            beat.came, beat.fresh, beat.unstamped = now, 0, 0
        self._fresh.clear()

    @property
    def usual(self) -> float | None:
        """How long a step usually takes, None while that is not known."""
        return statistics.median(self._durations) if self._durations else None

    @property
    def longest(self) -> float:
        """The longest time without a step that turned out to be none of trouble."""
        return max(self._gaps, default=0.0)

    def _step(self, key: Hashable, voice: Voice, event: Event, now: float, part: int) -> None:
        place = (key, event.signature)
        beat = self._beats.get(place)
        if beat is None:
            beat = self._beats[place] = _Beat(event, part)
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
        voice.step, voice.advanced = event, now
        self.pause, self.done = None, _is_last(event)


def _later(one: Event, part: int, other: Event, other_part: int) -> bool:
    """Tell whether an event is news: of a line that is redrawn, another state."""
    place, known = (part, one.line), (other_part, other.line)
    return place > known or (place == known and one.text != other.text)


def _between(one: Event, two: Event) -> float | None:
    first, second = one.context.time, two.context.time
    return second - first if first is not None and second is not None else None


def _is_last(event: Event) -> bool:
    """Tell whether a counter has come to its end, after which other work may follow."""
    step, total = event.number("step"), event.number("total")
    return step is not None and total is not None and step >= total
