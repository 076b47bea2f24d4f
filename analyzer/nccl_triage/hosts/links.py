"""What it takes to reach hosts: their places, links to them, and launchers, which open links; and how several links are heard."""

from __future__ import annotations

import selectors
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

#: Seconds between two looks at links that have no descriptor.
POLL = 0.05


@dataclass(frozen=True, slots=True)
class HostPlace:
    """A host where ranks can run: the command that reaches it (empty for this host), and the ranks on it if that is fixed."""

    name: str
    command: tuple[str, ...] = ()
    slots: int | None = None
    address: str | None = None


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names with duplicates numbered: HOST, HOST#2 and so on."""
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return unique


class Link(Protocol):
    """A connection to the program on one host."""

    def send(self, command: Mapping[str, Any]) -> None:
        """Send one command; a dead program is noticed by ``receive``."""

    def receive(self) -> list[dict[str, Any]]:
        """Return what the program has said since the last call, without waiting; ``{"answer": "gone"}`` at its end."""

    def descriptor(self) -> int | None:
        """Return a file descriptor that becomes readable with the next answer, or None when it must be polled."""

    def said(self) -> str:
        """Return the last complaint of the program, or of what reaches it."""


class Launcher(Protocol):
    """A way to reach hosts: how many are reached at once, and the seconds that reaching one may take."""

    places: Sequence[HostPlace]
    at_once: int
    reach: float

    def open(self, place: int) -> Link:
        """Start the program on a host without waiting for it; raises OSError on failure."""

    def ready(self) -> None:
        """Wait for the programs to start where that can fail; raises UsageError."""

    def end(self) -> None:
        """End all programs and what they started, all at once."""

    def reserve(self, gpus: Mapping[int, int]) -> dict[int, str]:
        """Take GPUs of hosts (index -> how many) from whoever shares them out.

        Returns CUDA_VISIBLE_DEVICES of the hosts whose GPUs were chosen by somebody else; raises UsageError for GPUs that
        are not to be had.
        """

    def close(self) -> None:
        """End all programs, and release what was reserved or joined."""


class Listener:
    """Open links by the index of their host."""

    def __init__(self) -> None:
        self.links: dict[int, Link] = {}
        self._polled: set[int] = set()
        self._selected: dict[int, int] = {}
        self._selector = selectors.DefaultSelector()

    def add(self, place: int, link: Link) -> None:
        """Listen to a link."""
        self.links[place] = link
        descriptor = link.descriptor()
        if descriptor is None:
            self._polled.add(place)
        else:
            self._selected[place] = descriptor
            self._selector.register(descriptor, selectors.EVENT_READ, place)

    def remove(self, place: int) -> None:
        """Listen to a link no more."""
        self._polled.discard(place)
        descriptor = self._selected.pop(place, None)
        if descriptor is not None:
            self._selector.unregister(descriptor)

    def receive(self, timeout: float) -> list[tuple[int, dict[str, Any]]]:
        """Return (place, answer) pairs, waiting at most ``timeout`` seconds for the first."""
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            ready = [key.data for key, _ in self._selector.select(min(left, POLL) if self._polled else left)]
            found = [(place, answer) for place in [*ready, *self._polled] for answer in self.links[place].receive()]
            for place in [place for place, answer in found if answer.get("answer") == "gone"]:
                self.remove(place)
            if found or time.monotonic() >= deadline:
                return found

    def close(self) -> None:
        """Forget the links; they stay open."""
        self._selector.close()
