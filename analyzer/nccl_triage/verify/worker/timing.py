"""The time of a collective: inputs are made before, iterations are issued one after the other, and checked apart.

Each iteration has a begin and an end of its own, so that a rank for which the others wait can be told from them: on GPUs
events in the stream, which take the cost of the calls out of it, elsewhere the clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .collectives import Prepared
from .payload import Call

#: Iterations that are timed, and those that are timed however long they take.
TIMED, LEAST = 20, 3
#: Seconds after which no further iteration is checked, and those that the timed ones may take.
SECONDS = 4.0
#: Seconds after which a sign of life is due: the parent's limit is for the time between two.
ALIVE = 1.0


def synchronize(call: Call) -> None:
    """Wait until the GPU has done what was asked of it."""
    if call.device.type == "cuda":
        call.torch.cuda.synchronize(call.device)


def largest(call: Call, value: float) -> float:
    """Return the largest of the values of all ranks, the same on all: whoever stops early would leave others waiting."""
    told = call.torch.tensor([value], device=call.device, dtype=call.torch.float32)
    call.dist.all_reduce(told, op=call.dist.ReduceOp.MAX)
    return float(told.item())


@dataclass
class Stopwatch:
    """Issues a prepared collective and measures it.

    ``before`` is called before each timed iteration, ``between`` before each checked one: a rank's own work there does
    not enter the times.
    """

    call: Call
    prepared: Prepared
    before: Callable[[int], None] = lambda iteration: None
    between: Callable[[], None] = lambda: None
    alive: Callable[[int], None] = lambda done: None
    seconds: float = SECONDS
    iteration: int = 0
    slowest: float = 0.0

    def checked(self, count: int) -> int:
        """Run iterations with data of their own; returns the wrong elements. Ends early, on all ranks alike."""
        wrong, begun = 0, time.monotonic()
        told = begun
        for done in range(1, count + 1):
            self.iteration += 1
            self.between()
            self.prepared.fill(self.iteration)
            self.prepared.issue()
            synchronize(self.call)
            wrong += self.prepared.wrong(self.iteration)
            if done % 20 == 0 or time.monotonic() - told > ALIVE:
                told = time.monotonic()
                self.alive(done)
            if done < count and largest(self.call, time.monotonic() - begun) > self.seconds:
                break
        return wrong

    def timed(self) -> list[float]:
        """Return the seconds of each timed iteration: ``TIMED``, or as many as the time allows on the slowest rank."""
        self.prepared.fill(self.iteration)
        self.call.dist.barrier()
        synchronize(self.call)
        first = self._clocked(1)
        self.slowest = max(largest(self.call, first[0]), 1e-9)
        more = min(TIMED - 1, int(self.seconds / self.slowest))
        if more < LEAST - 1 and self.slowest < 2 * self.seconds:
            more = LEAST - 1
        self.alive(1)
        seconds = first + (self._clocked(more) if more else [])
        self.alive(len(seconds))
        return seconds

    def _clocked(self, count: int) -> list[float]:
        return (self._by_events if self.call.device.type == "cuda" else self._by_clock)(count)

    def _by_clock(self, count: int) -> list[float]:
        issue, seconds = self.prepared.issue, []
        for index in range(count):
            self.before(index)
            started = time.perf_counter()
            issue()
            seconds.append(time.perf_counter() - started)
        return seconds

    def _by_events(self, count: int) -> list[float]:
        event, issue = self.call.torch.cuda.Event, self.prepared.issue
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(count)]
        for index, (begin, end) in enumerate(pairs):
            self.before(index)
            begin.record()
            issue()
            end.record()
        synchronize(self.call)
        return [begin.elapsed_time(end) / 1000 for begin, end in pairs]


def measured(watch: Stopwatch, iterations: int) -> dict[str, Any]:
    """Return the wrong elements, the seconds of each timed iteration and their median.

    ``iterations`` are checked before and one after the timed ones, which leave nothing that could be checked.
    """
    wrong = watch.checked(iterations)
    seconds = watch.timed()
    if watch.slowest < watch.seconds:  # the same on all ranks
        wrong += watch.checked(1)
    return {"wrong": wrong, "seconds": [round(value, 7) for value in seconds], "median": statistics.median(seconds)}
