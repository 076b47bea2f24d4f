"""Runs several things at the same time on one cluster, each on hosts of its own: one reader passes the answers on."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify.cluster import Cluster

Result = TypeVar("Result")
#: Seconds between two looks at whether everything is done.
_LOOK = 0.05


class _EndedError(Exception):
    """The whole has been interrupted; whoever waits for an answer stops waiting."""


class SomeHosts(Cluster):
    """The agents of some hosts of an open cluster, whose answers somebody else reads."""

    def __init__(self, whole: Cluster) -> None:
        self._whole = whole
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._inbox: queue.SimpleQueue[tuple[int, dict[str, Any]] | None] = queue.SimpleQueue()
        self.gone, self.facts = whole.gone, whole.facts

    @property
    def places(self) -> Sequence[HostPlace]:
        """All hosts of the cluster."""
        return self._whole.places

    def name(self, place: int) -> str:
        """Return a host's name as people know it."""
        return self._whole.name(place)

    def put(self, place: int, answer: dict[str, Any]) -> None:
        """Hand over an answer that has arrived."""
        self._inbox.put((place, answer))

    def end(self) -> None:
        """Let whoever waits stop waiting."""
        self._inbox.put(None)

    def send(self, place: int, **command: Any) -> None:
        """Send a command to one agent."""
        self._whole.send(place, **command)

    def receive(self, timeout: float) -> list[tuple[int, dict[str, Any]]]:
        """Return (place, answer) pairs, waiting at most ``timeout`` seconds for the first."""
        found, self._waiting = self._waiting, []
        try:
            while True:
                entry = self._inbox.get(block=not found, timeout=max(0.0, timeout))
                if entry is None:
                    raise _EndedError
                found.append(entry)
        except queue.Empty:
            return found


def together(cluster: Cluster, works: Sequence[tuple[Sequence[int], Callable[[Cluster], Result]]]) -> list[Result]:
    """Do each work on the places beside it, all at once, and return their results in order.

    Raises ValueError when two works want one place.
    """
    owners: dict[int, SomeHosts] = {}
    views = [SomeHosts(cluster) for _ in works]
    for view, (places, _) in zip(views, works, strict=True):
        for place in places:
            if place in owners:
                raise ValueError(f"two runs at once on host {place}")
            owners[place] = view
    with ThreadPoolExecutor(max_workers=max(1, len(works))) as pool:
        running = [pool.submit(work, view) for view, (_, work) in zip(views, works, strict=True)]
        try:
            while not all(future.done() for future in running):
                for place, answer in cluster.receive(_LOOK):
                    if place in owners:
                        owners[place].put(place, answer)
        finally:
            for view in views:
                view.end()
        return [future.result() for future in running]
