"""The state of a followed job at a glance: its step, its slowest rank, and how long ago each host last wrote.

Times are those of ``heartbeats``. Nothing here is a verdict: ``hang`` says when silence is suspicious.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nccl_triage import steps
from nccl_triage.follow.follower import Follower
from nccl_triage.follow.heartbeats import ProcessHeartbeat
from nccl_triage.observations.event import Event

#: Seconds between two looks at the durations of steps, and that distance as a multiple of what a look takes.
LOOK, LOOK_SHARE = 10.0, 50.0
#: Steps that a rank is behind at once, since lines of one step come one after the other; with fewer, seconds and the share
#: of a usual step for which it must be behind.
_BEHIND, _LATE, _LATE_SHARE = 2, 1.0, 0.5


class SlowRank(NamedTuple):
    """The slowest rank: its last step if that is behind the others, or how many times as long its steps take."""

    rank: int
    host: str | None
    step: int | None = None
    ratio: float | None = None


class HostSilence(NamedTuple):
    """A host and the seconds since its last line; without a name, that of all."""

    host: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class JobState:
    """What is known of a running job."""

    logs: int
    ranks: int = 0
    step: int | None = None
    total: int | None = None
    #: Seconds of a usual step, and since the last one.
    usual: float | None = None
    advanced: float | None = None
    slowest: SlowRank | None = None
    #: The most silent first.
    hosts: list[HostSilence] = field(default_factory=list)


class JobGlance:
    """Looks at a followed job repeatedly; durations of steps, which take long to compare, are compared seldom."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._slow: SlowRank | None = None
        self._next = 0.0

    def look(self, now: float) -> JobState:
        """Return the state at a time of our clock."""
        follower, heartbeats = self._follower, self._follower.heartbeats
        processes = list(heartbeats.processes.values())
        ranks = {process.last.context.rank for process in processes} - {None}
        counted = [one for one in processes if one.step is not None and one.step.number("step") is not None]
        top = max(counted, key=_step, default=None)
        total = top.step.number("total") if top is not None and top.step is not None else None
        return JobState(
            logs=len(follower.logs),
            ranks=len(ranks),
            step=None if top is None else int(_step(top)),
            total=None if total is None else int(total),
            usual=heartbeats.usual,
            advanced=None if heartbeats.advanced is None else max(0.0, now - heartbeats.advanced),
            slowest=_behind(counted, now, heartbeats.usual) or self._by_duration(len(ranks)),
            hosts=self._hosts(processes, now),
        )

    def _hosts(self, processes: Iterable[ProcessHeartbeat], now: float) -> list[HostSilence]:
        heard: dict[str | None, float] = {}
        of_source: dict[str, set[str | None]] = {}
        for process in processes:
            host = process.last.context.host
            heard[host] = max(heard.get(host, 0.0), process.heard)
            of_source.setdefault(process.last.source, set()).add(host)
        # Lines that mean nothing to us are signs of life, too, where a log has one host.
        offset = time.time() - time.monotonic()
        for log in self._follower.logs:
            hosts = of_source.get(log.name, {log.origin.info.host}) - {None} or {None}
            if log.grown and log.live and len(hosts) == 1:
                host = next(iter(hosts))
                heard[host] = max(heard.get(host, 0.0), log.grown + offset)
        if len(heard) > 1:
            heard.pop(None, None)
        silences = [HostSilence(host, max(0.0, now - last)) for host, last in heard.items()]
        return sorted(silences, key=lambda one: (-round(one.seconds), one.host or ""))

    def _by_duration(self, ranks: int) -> SlowRank | None:
        """Return the rank whose steps take longest, where ``steps`` finds one."""
        started = time.monotonic()
        if ranks > 1 and started >= self._next and not self._follower.starting:
            slow = steps.observe(self._follower.observations()).events("steps.slow_rank")
            event = max((one for one in slow if one.context.rank is not None), key=_ratio, default=None)
            rank = event.context.rank if event is not None else None
            self._slow = (
                None if event is None or rank is None else SlowRank(rank, event.context.host, None, _ratio(event))
            )
            took = time.monotonic() - started
            self._next = started + took + max(LOOK, LOOK_SHARE * took)
        return self._slow


def _step(process: ProcessHeartbeat) -> float:
    """Return the last step of a process that has one."""
    number = process.step.number("step") if process.step is not None else None
    return -1.0 if number is None else number


def _ratio(event: Event) -> float:
    return event.number("ratio") or 0.0


def _behind(counted: Sequence[ProcessHeartbeat], now: float, usual: float | None) -> SlowRank | None:
    """Return the rank whose last step lies furthest behind that of the others, where their counters compare."""
    last: dict[int, ProcessHeartbeat] = {}
    for process in counted:
        rank = process.last.context.rank
        if rank is not None and (rank not in last or _step(process) > _step(last[rank])):
            last[rank] = process
    if len(last) < 2 or len({process.step.signature for process in last.values() if process.step is not None}) > 1:
        return None
    top = max(map(_step, last.values()))
    rank, slowest = min(last.items(), key=lambda item: (_step(item[1]), item[1].advanced, item[0]))
    missing = top - _step(slowest)
    reached = min(process.advanced for process in last.values() if _step(process) == top)
    if missing < 1 or (missing < _BEHIND and now - reached < max(_LATE, _LATE_SHARE * (usual or 0.0))):
        return None
    return SlowRank(rank, slowest.last.context.host, int(_step(slowest)))
