"""Asks hosts once: starts the program on each with its wish, hands on what it answers, and ends it in time.

A host that does not answer costs its own answers only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from nccl_triage.hosts.links import Launcher, Listener

#: Bytes of data that one host may send.
MOST = 256 << 20
#: Seconds between two looks at the deadlines.
_LOOK = 0.25

Wishes = Mapping[int, Mapping[str, Any]]
Take = Callable[[int, dict[str, Any]], None]
Progress = Callable[[int, int], None]


def ask(
    launcher: Launcher,
    wishes: Wishes,
    seconds: float,
    take: Take,
    progress: Progress = lambda done, total: None,
) -> dict[int, str]:
    """Ask hosts, by their index, and hand each answer to ``take``; returns why hosts have not said that they are done.

    ``seconds`` are what the program may take there; ``progress`` receives for how many hosts nothing more is to come.
    """
    asking = _Asking(launcher, wishes, launcher.reach + seconds, take, progress)
    try:
        asking.run()
    finally:
        asking.listener.close()
        launcher.end()
    return asking.problems


class _Asking:
    def __init__(self, launcher: Launcher, wishes: Wishes, seconds: float, take: Take, progress: Progress) -> None:
        self.listener = Listener()
        self.problems: dict[int, str] = {}
        self._launcher, self._wishes, self._seconds, self._take = launcher, wishes, seconds, take
        self._progress = progress
        self._waiting = list(wishes)
        self._deadlines: dict[int, float] = {}
        self._sizes: dict[int, int] = {}

    def run(self) -> None:
        while self._waiting or self._deadlines:
            while self._waiting and len(self._deadlines.keys() - self._sizes) < self._launcher.at_once:
                self._open(self._waiting.pop(0))
            for place, answer in self.listener.receive(_LOOK):
                self._heard(place, answer)
            for place in [place for place, deadline in self._deadlines.items() if deadline < time.monotonic()]:
                said = self.listener.links[place].said()
                self._end(place, f"no answer: {said}" if said else "no answer")

    def _open(self, place: int) -> None:
        try:
            link = self._launcher.open(place)
        except OSError as error:
            self._end(place, error.strerror or str(error))
            return
        link.send(self._wishes[place])
        self.listener.add(place, link)
        self._deadlines[place] = time.monotonic() + self._seconds

    def _heard(self, place: int, answer: dict[str, Any]) -> None:
        if place not in self._deadlines:  # what came along with its last answer
            return
        kind = answer.get("answer")
        self._sizes[place] = self._sizes.get(place, 0) + len(answer.get("data") or "")
        if kind == "gone":
            self._end(place, str(answer.get("error")))
        elif kind == "done" or self._sizes[place] > MOST:
            self._end(place)
        else:
            self._take(place, answer)

    def _end(self, place: int, problem: str | None = None) -> None:
        """Wait no longer for a host."""
        self._deadlines.pop(place, None)
        self.listener.remove(place)
        if problem is not None:
            self.problems[place] = problem
        self._progress(len(self._wishes) - len(self._waiting) - len(self._deadlines), len(self._wishes))
