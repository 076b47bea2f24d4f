"""The agents of a session: sends commands to all of them and collects their answers."""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence
from typing import Any

from nccl_triage.errors import UsageError
from nccl_triage.verify.collective_run import HostPlace
from nccl_triage.verify.launchers import AgentLink, Launcher

#: Seconds that agents get to answer, and to import torch.
GREETING, IMPORT = 20.0, 120.0
#: Seconds between two looks at links that have no descriptor.
POLL = 0.05


class Cluster:
    """Open agents, one per host; a context manager that ends them all."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._links: list[AgentLink] = []
        self._selector = selectors.DefaultSelector()
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self.gone: dict[int, str] = {}
        self.facts: list[dict[str, Any]] = []

    @property
    def places(self) -> Sequence[HostPlace]:
        """The hosts."""
        return self._launcher.places

    def name(self, place: int) -> str:
        """Return a host's name as people know it."""
        return self._launcher.places[place].name

    def __enter__(self) -> Cluster:
        self._links = self._launcher.open()
        for index, link in enumerate(self._links):
            descriptor = link.descriptor()
            if descriptor is not None:
                self._selector.register(descriptor, selectors.EVENT_READ, index)
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        self._launcher.close()

    def send(self, place: int, **command: Any) -> None:
        """Send a command to one agent."""
        self._links[place].send(command)

    def receive(self, timeout: float) -> list[tuple[int, dict[str, Any]]]:
        """Return (place, answer) pairs, waiting at most ``timeout`` seconds for the first."""
        found, self._waiting = self._waiting, []
        if found:
            return found
        polled = [index for index, link in enumerate(self._links) if link.descriptor() is None]
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            ready = [key.data for key, _ in self._selector.select(min(left, POLL) if polled else left)]
            for index in [*ready, *polled]:
                for answer in self._links[index].receive():
                    if answer.get("answer") == "gone":
                        self._lost(index, str(answer.get("error", "")))
                    found.append((index, answer))
            if found or time.monotonic() >= deadline:
                return found

    def _lost(self, place: int, error: str) -> None:
        self.gone[place] = error
        descriptor = self._links[place].descriptor()
        if descriptor is not None:
            self._selector.unregister(descriptor)

    def ask(
        self,
        what: str,
        places: Sequence[int],
        timeout: float,
        per_place: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> dict[int, dict[str, Any]]:
        """Send one command to several agents and return their answers; the lost and the late are missing."""
        for place in places:
            self.send(place, do=what, **(per_place or {}).get(place, {}))
        missing = {place for place in places if place not in self.gone}
        answers: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + timeout
        kept: list[tuple[int, dict[str, Any]]] = []
        while missing and time.monotonic() < deadline:
            for place, answer in self.receive(deadline - time.monotonic()):
                kind = answer.get("answer")
                if kind == "gone" or (kind == "error" and answer.get("do") == what):
                    missing.discard(place)
                elif kind == what and place in missing:
                    answers[place] = answer
                    missing.discard(place)
                else:
                    kept.append((place, answer))
        self._waiting.extend(kept)
        return answers

    def greet(self, timeout: float) -> None:
        """Wait for every agent's facts; raises UsageError when one cannot be reached."""
        everywhere = range(len(self._links))
        answers = self.ask("facts", everywhere, timeout)
        for place in everywhere:
            if place not in answers:
                raise UsageError(
                    "no answer from {host}",
                    cause="{why}" if self.gone.get(place) else "nothing within {timeout:.0f} s",
                    why=self.gone.get(place),
                    timeout=timeout,
                    remedy="check that the host can be reached and that --python exists there",
                    host=self.name(place),
                )
        self._waiting.clear()
        self.facts = [answers[place]["facts"] for place in everywhere]

    def gpus(self, places: Sequence[int], timeout: float = IMPORT, *, imports: bool = True) -> dict[int, Any]:
        """Ask agents for the GPUs and the torch of their hosts; what they answer may be anything, the late are missing.

        With ``imports``, a process of each host that has GPUs imports torch to see whether it works.
        """
        wish = {"imports": imports}
        answers = self.ask("gpus", places, timeout, dict.fromkeys(places, wish))
        return {place: answer.get("results") for place, answer in answers.items()}

    def reserve(self, gpus: Mapping[int, int]) -> dict[int, str]:
        """Take GPUs of hosts (index -> how many) from whoever shares them out; see ``Launcher.reserve``."""
        return self._launcher.reserve(gpus)

    def preload(self, timeout: float) -> dict[int, str | None]:
        """Import torch in every agent; returns the error of each place that has none."""
        answers = self.ask("preload", range(len(self._links)), timeout)
        return {
            place: (answers[place].get("error") if place in answers else f"no answer within {timeout:.0f} s")
            for place in range(len(self._links))
            if place not in answers or answers[place].get("error")
        }
