"""Workers on nodes as the driver sees them: one call at a time each, watched, and ended when they fall silent."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.execution.cluster import worker
from nccl_triage.execution.cluster.targets import Node
from nccl_triage.ray_access import by_value, failures, reason

#: Seconds that one turn waits for news at most: Ctrl-C is not heard inside of it.
TURN = 0.25
#: Seconds between two questions how far a worker is, and such questions a second in all.
_ASK, _ASKS = 0.5, 1000
#: The most seconds of silence that one turn can add: this process, too, may have been stopped in between.
_LOOK = 1.0
#: Seconds at least for a worker to start: its node may be busy.
_START = 60.0
#: Threads of a worker: one may hang in a scan while others answer.
_THREADS = 3
#: Calls that answer twice: what the driver must know, and the findings, which stay where they are.
_FINDINGS = frozenset({"take", "merge"})


@dataclass(slots=True)
class Reply:
    """What became of a call: its value or why it failed; ``findings`` is a reference to those of take and merge."""

    call: str
    value: Any = None
    findings: Any = None
    error: str | None = None


@dataclass(eq=False, slots=True)
class Member:
    """A worker. ``call`` is what it is doing, ``gone`` why nothing can be asked of it any more."""

    node: Node
    actor: Any
    call: str | None = None
    gone: str | None = None
    read: int = 0
    _started: bool = False
    _answer: Any = None
    _findings: Any = None
    _question: Any = None
    _ask_at: float = 0.0
    _silent: float = 0.0
    _news: tuple[int, int] = (0, 0)
    _patience: float = field(default=0.0)

    def send(self, call: str, *arguments: Any, patience: float) -> None:
        """Call a method of the desk; whatever it was doing is not waited for any more."""
        self.call, self._silent, self._patience = call, 0.0, patience
        if call in _FINDINGS:
            self._answer, self._findings = self.actor.call.options(num_returns=2).remote(call, *arguments)
        else:
            self._answer = self.actor.call.remote(call, *arguments)

    def tell(self, call: str, *arguments: Any, patience: float) -> None:
        """Call a method beside the one that runs, which from now on has less patience."""
        self.actor.call.remote(call, *arguments)
        self._silent, self._patience = 0.0, min(self._patience, patience)

    @property
    def idle(self) -> bool:
        """Whether it can be given work."""
        return self.call is None and self.gone is None

    def expected(self, now: float, pause: float) -> Iterator[Any]:
        """Yield the references that are waited for; asks how far it is when it is time to."""
        if self.call is None or self.gone is not None:
            return
        if self._question is None and now >= self._ask_at:
            self._question, self._ask_at = self.actor.call.remote("progress"), now + pause
        yield self._answer
        if self._question is not None:
            yield self._question

    def hear(self, ray: Any, ready: set[Any], passed: float) -> Reply | None:
        """Return what became of the call, if that is known now."""
        call = self.call
        if call is None or self.gone is not None:
            return None
        try:
            if self._question in ready:
                question, self._question = self._question, None
                self._learn(ray.get(question))
            if self._answer in ready:
                reply = Reply(call, ray.get(self._answer), self._findings)
                self.call = self._answer = self._findings = None
                return reply
        except failures(ray) as error:
            # "Unavailable" may be the network's mood: silence decides.
            if type(error).__name__ != "ActorUnavailableError" or self._answer in ready:
                self.gone, self.call = _why(error), None
                return Reply(call, error=self.gone)
        self._silent += min(passed, _LOOK)
        patience = self._patience if self._started else max(_START, self._patience)
        if self._silent <= patience:
            return None
        self.call = self._answer = self._findings = None
        return Reply(call, error=f"no news for {patience:.0f} s")

    def _learn(self, told: tuple[int, int]) -> None:
        self._started = True
        if told != self._news:
            self._news, self.read, self._silent = told, told[0], 0.0


def _why(error: Exception) -> str:
    """Return why a worker is lost; where Ray knows no more than that, in plain words."""
    text = reason(error)
    plain = "died or cannot be reached"
    return text if type(error).__name__ == "RayTaskError" or ("because" in text and "its node" not in text) else plain


class Crew:
    """All workers."""

    def __init__(self, ray: Any, program: bytes, rules: bytes) -> None:
        self.members: list[Member] = []
        self._ray = ray
        self._parcels = ray.put(program), ray.put(rules)
        self._looked = time.monotonic()

    def hire(self, nodes: Sequence[Node]) -> list[Member]:
        """Return a new worker on each of the nodes; that one cannot start is the answer to its first call."""
        pinned = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        hired = []
        with by_value(self._ray, worker):
            actor = self._ray.remote(worker.Worker)
            for node in nodes:
                # No CPU is asked for: the job's own actors, which may be stuck, may hold them all.
                options = actor.options(
                    num_cpus=0, max_concurrency=_THREADS, scheduling_strategy=pinned(node.id, soft=False)
                )
                hired.append(Member(node, options.remote(*self._parcels)))
        self.members += hired
        return hired

    def turn(self) -> Iterator[tuple[Member, Reply]]:
        """Wait a moment and yield what became of calls."""
        start = time.monotonic()
        pause = max(_ASK, len(self.members) / _ASKS)
        expected = [reference for member in self.members for reference in member.expected(start, pause)]
        if not expected:
            self._looked = start
            return
        self._ray.wait(expected, num_returns=1, timeout=TURN)
        ready = set(self._ray.wait(expected, num_returns=len(expected), timeout=0, fetch_local=False)[0])
        passed, self._looked = time.monotonic() - self._looked, time.monotonic()
        for member in self.members:
            reply = member.hear(self._ray, ready, passed)
            if reply is not None:
                yield member, reply

    def dismiss(self, member: Member, why: str) -> None:
        """End a worker."""
        member.gone, member.call = member.gone or why, None
        with contextlib.suppress(*failures(self._ray)):
            self._ray.kill(member.actor, no_restart=True)

    def close(self) -> None:
        """End all workers."""
        for member in self.members:
            self.dismiss(member, "dismissed")
