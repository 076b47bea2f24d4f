"""The agents of a session: sends commands to all of them and collects their answers."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_triage.errors import UsageError
from nccl_triage.hosts import programs
from nccl_triage.hosts.links import HostPlace, Launcher, Listener

#: Seconds that agents get to answer, and to import torch.
GREETING, IMPORT = 20.0, 120.0


@functools.cache
def worker() -> programs.Program:
    """Return what runs on the hosts: the agent, which sends the ranks' logs where it cannot leave them in our folder."""
    return programs.Program(
        programs.archive("nccl_triage.verify.worker.__main__", "verify/worker"), ("agent",), ("carry",)
    )


class Cluster:
    """Open agents, one per host; a context manager that ends them all."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._listener = Listener()
        self._logs = RankLogs()
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
        try:
            for place in range(len(self.places)):
                self._open(place)
            self._launcher.ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _open(self, place: int) -> None:
        try:
            self._listener.add(place, self._launcher.open(place))
        except OSError as error:
            raise UsageError(
                "cannot start an agent on {name}: {why}",
                cause="the command was: {command}",
                remedy="check --host and --python",
                name=self.name(place),
                why=error.strerror,
                command=" ".join(self.places[place].command or [str(error.filename)]),
            ) from None

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._launcher.close()

    def send(self, place: int, **command: Any) -> None:
        """Send a command to one agent."""
        self._logs.note(command)
        self._listener.links[place].send(command)

    def receive(self, timeout: float) -> list[tuple[int, dict[str, Any]]]:
        """Return (place, answer) pairs, waiting at most ``timeout`` seconds for the first."""
        found, self._waiting = self._waiting, []
        if found:
            return found
        for place, answer in self._listener.receive(timeout):
            if answer.get("answer") == "gone":
                self.gone[place] = str(answer.get("error", ""))
            found.append((place, self._logs.unpack(answer)))
        return found

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
        everywhere = range(len(self.places))
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
        answers = self.ask("preload", range(len(self.places)), timeout)
        return {
            place: (answers[place].get("error") if place in answers else f"no answer within {timeout:.0f} s")
            for place in range(len(self.places))
            if place not in answers or answers[place].get("error")
        }


class RankLogs:
    """The folders of the runs that were started."""

    def __init__(self) -> None:
        self._folders: dict[str, Path] = {}

    def note(self, command: Mapping[str, Any]) -> None:
        """Remember the folder of a run's logs, if the command starts one."""
        if command.get("do") == "run":
            self._folders[command["run"]] = Path(command["folder"])

    def unpack(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer; a log in it is written to where a rank on this host would have left it."""
        folder = self._folders.get(str(answer.get("run")))
        for name, end in (("log", ".log"), ("nccl_log", ".nccl.log")):
            text = answer.pop(name, None)
            if isinstance(text, str) and folder is not None:
                with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                    path = folder / f"rank-{int(answer['rank'])}{end}"
                    folder.mkdir(parents=True, exist_ok=True)
                    path.touch(mode=0o600)
                    path.write_text(text, encoding="utf-8", errors="replace")
        return answer
