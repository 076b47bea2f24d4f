"""Ranks without an agent gather in a folder that every host sees: all have imported torch before any goes to the store.

Each rank says in a file of its own that it is ready, or that it is not going to be. Rank 0 alone looks for all of them,
and answers in one file for which the others look: a look of every rank for every other would be a load of its own.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

#: Seconds between two looks of rank 0, and of another rank.
LOOK, GLANCE = 0.5, 0.25
_ANSWER = "go.json"


class Gathering:
    """One start of a run (``attempt``) of ``world`` ranks; what an earlier start left in the folder does not count."""

    def __init__(self, folder: Path, rank: int, world: int, attempt: str) -> None:
        self._folder, self._rank, self._world, self._attempt = folder, rank, world, attempt
        self._known: dict[int, str] = {}
        self._next = 0.0
        self.missing: tuple[int, ...] = ()

    def clear(self) -> None:
        """Remove what this rank has left, now or in an earlier start."""
        names = [f"ready-{self._rank}.json", *([_ANSWER] if self._rank == 0 else [])]
        for name in names:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def say(self, what: str) -> None:
        """Tell that this rank is "ready", or why it is not; that the folder is gone is noticed elsewhere."""
        self._write(f"ready-{self._rank}.json", what)

    def give_up(self, why: str) -> None:
        """Tell that this rank is not going to be ready; rank 0 speaks for all."""
        self.say(why)
        if self._rank == 0:
            self._write(_ANSWER, why)

    def answer(self) -> str | None:
        """Return "go" when all ranks are ready, why they will never be, or None for not yet."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + (GLANCE if self._rank else LOOK)
        if self._rank:
            return self._read(self._folder / _ANSWER)
        found = self._decided()
        if found is not None:
            self._write(_ANSWER, found)
        return found

    def _decided(self) -> str | None:
        for rank in range(self._world):
            if rank not in self._known and (told := self._read(self._folder / f"ready-{rank}.json")):
                self._known[rank] = told
        failed = [(rank, told) for rank, told in sorted(self._known.items()) if told != "ready"]
        self.missing = tuple(rank for rank in range(self._world) if rank not in self._known)
        if failed:
            return failed[0][1]
        return None if self.missing else "go"

    def _write(self, name: str, what: str) -> None:
        with contextlib.suppress(OSError):
            temporary = self._folder / f".{name}.{self._rank}"
            temporary.write_text(json.dumps({"attempt": self._attempt, "says": what}))
            temporary.replace(self._folder / name)

    def _read(self, path: Path) -> str | None:
        with contextlib.suppress(OSError, ValueError):
            told = json.loads(path.read_text())
            if isinstance(told, dict) and told.get("attempt") == self._attempt:
                return str(told.get("says"))
        return None
