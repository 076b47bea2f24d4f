"""The driver's handles of workers on nodes: each runs one call at a time and is stopped when it makes no progress."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.hosts.ray_access import failures, reason
from nccl_triage.hosts.ray_actors import Service
from nccl_triage.hosts.ray_nodes import RayNode, end_actors, start_actors

#: The most seconds that one ``wait`` blocks; Ctrl-C is not handled meanwhile.
TURN = 0.25
#: Seconds between two progress queries to a worker, and the most queries a second to all of them.
_ASK, _ASKS = 0.5, 1000
#: The most seconds of silence that one ``wait`` can add: this process may itself have been suspended.
_LOOK = 1.0
#: The least seconds that a worker is given to start: its node may be busy.
_START = 60.0
#: Threads of a worker: one may hang in a scan while others answer.
_THREADS = 3
#: What runs on the nodes.
_SERVICE = ("nccl_triage.execution.cluster.node_service", "NodeService")
#: Calls with two results: one for the driver, and the findings, which stay in the object store.
_FINDINGS = frozenset({"take", "merge"})


@dataclass(slots=True)
class Reply:
    """The result of a call: its value, or why it failed; ``findings`` refers to the findings of take and merge."""

    call: str
    value: Any = None
    findings: Any = None
    error: str | None = None


@dataclass(eq=False, slots=True)
class WorkerHandle:
    """A worker. ``call`` is the call that it runs, ``gone`` the reason why it can no longer be used."""

    node: RayNode
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
    _timeout: float = field(default=0.0)

    def send(self, call: str, *arguments: Any, timeout: float) -> None:
        """Call a method of the node service; an earlier call is no longer waited for."""
        self.call, self._silent, self._timeout = call, 0.0, timeout
        if call in _FINDINGS:
            self._answer, self._findings = self.actor.call.options(num_returns=2).remote(call, *arguments)
        else:
            self._answer = self.actor.call.remote(call, *arguments)

    def tell(self, call: str, *arguments: Any, timeout: float) -> None:
        """Call a method beside the one that runs, which from now on may take no longer than ``timeout``."""
        self.actor.call.remote(call, *arguments)
        self._silent, self._timeout = 0.0, min(self._timeout, timeout)

    @property
    def idle(self) -> bool:
        """Whether it can take a call."""
        return self.call is None and self.gone is None

    def expected(self, now: float, pause: float) -> Iterator[Any]:
        """Yield the references to wait for; sends a progress query when one is due."""
        if self.call is None or self.gone is not None:
            return
        if self._question is None and now >= self._ask_at:
            self._question, self._ask_at = self.actor.call.remote("progress"), now + pause
        yield self._answer
        if self._question is not None:
            yield self._question

    def poll(self, ray: Any, ready: set[Any], passed: float) -> Reply | None:
        """Return the result of the call if there is one now."""
        call = self.call
        if call is None or self.gone is not None:
            return None
        try:
            if self._question in ready:
                question, self._question = self._question, None
                self._note_progress(ray.get(question))
            if self._answer in ready:
                reply = Reply(call, ray.get(self._answer), self._findings)
                self.call = self._answer = self._findings = None
                return reply
        except failures(ray) as error:
            # "Unavailable" may be temporary: only a timeout decides.
            if type(error).__name__ != "ActorUnavailableError" or self._answer in ready:
                self.gone, self.call = _why(error), None
                return Reply(call, error=self.gone)
        self._silent += min(passed, _LOOK)
        timeout = self._timeout if self._started else max(_START, self._timeout)
        if self._silent <= timeout:
            return None
        self.call = self._answer = self._findings = None
        return Reply(call, error=f"no news for {timeout:.0f} s")

    def _note_progress(self, told: tuple[int, int]) -> None:
        self._started = True
        if told != self._news:
            self._news, self.read, self._silent = told, told[0], 0.0


def _why(error: Exception) -> str:
    """Return why a worker is lost, in plain words where Ray gives no reason."""
    text = reason(error)
    plain = "died or cannot be reached"
    return text if type(error).__name__ == "RayTaskError" or ("because" in text and "its node" not in text) else plain


class Workers:
    """All workers of a scan."""

    def __init__(self, ray: Any, program: bytes, rules: bytes) -> None:
        self.handles: list[WorkerHandle] = []
        self._ray = ray
        self._payload = ray.put(program), ray.put(rules)
        self._looked = time.monotonic()

    def start(self, nodes: Sequence[RayNode]) -> list[WorkerHandle]:
        """Start a worker on each node; where one cannot start, its first call fails."""
        program, rules = self._payload
        actors = start_actors(self._ray, Service, nodes, (program, *_SERVICE, rules), max_concurrency=_THREADS)
        started = [WorkerHandle(node, actor) for node, actor in zip(nodes, actors, strict=True)]
        self.handles += started
        return started

    def wait(self) -> Iterator[tuple[WorkerHandle, Reply]]:
        """Wait briefly and yield the results of calls that ended."""
        start = time.monotonic()
        pause = max(_ASK, len(self.handles) / _ASKS)
        expected = [reference for handle in self.handles for reference in handle.expected(start, pause)]
        if not expected:
            self._looked = start
            return
        self._ray.wait(expected, num_returns=1, timeout=TURN)
        ready = set(self._ray.wait(expected, num_returns=len(expected), timeout=0, fetch_local=False)[0])
        passed, self._looked = time.monotonic() - self._looked, time.monotonic()
        for handle in self.handles:
            reply = handle.poll(self._ray, ready, passed)
            if reply is not None:
                yield handle, reply

    def stop(self, handle: WorkerHandle, why: str) -> None:
        """End a worker."""
        handle.gone, handle.call = handle.gone or why, None
        end_actors(self._ray, [handle.actor])

    def close(self) -> None:
        """End all workers."""
        for handle in self.handles:
            self.stop(handle, "dismissed")
