"""A log that is followed for a day while it is written and rotated, with time compressed: memory must not follow the day."""

from __future__ import annotations

import gc
import gzip
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Literal
from unittest.mock import patch

from corpus.generate.bench import stream
from nccl_triage.engine import load
from nccl_triage.follow import followed_log, follower
from nccl_triage.follow.follower import Follower
from tests.endure.memory import resident

#: How files are called when they are rotated: ``train.log.1``, or by their date, packed.
Style = Literal["numbers", "dates"]
#: How the log of a day is rotated, and whether its whole folder is followed.
WAYS: tuple[tuple[Style, bool], ...] = (("numbers", False), ("numbers", True), ("dates", False), ("dates", True))
#: Minutes between two rotations, and rotated files that are kept.
EVERY, KEPT = 10, 12
#: Megabytes that a day may take more than its first hours.
GROWTH = 24.0


@dataclass(slots=True)
class Clock:
    """The time of a simulated day; stands for the module ``time``."""

    passed: float = 0.0
    started: float = field(default_factory=time.time)

    def module(self) -> SimpleNamespace:
        """Return what a module finds instead of ``time``."""
        return SimpleNamespace(
            monotonic=lambda: self.passed, time=lambda: self.started + self.passed, strftime=time.strftime
        )


@dataclass(slots=True)
class Day:
    """What following took: resident megabytes and logs that were kept, every hour, and bytes that were read."""

    memory: list[float] = field(default_factory=list)
    logs: list[int] = field(default_factory=list)
    written: int = 0
    read: int = 0

    @property
    def growth(self) -> float:
        """Megabytes that the end of the day took more than the first sixth of it."""
        early = max(1, len(self.memory) // 6)
        return max(self.memory[early:]) - max(self.memory[:early])

    def wrong(self) -> list[str]:
        """Return what is wrong: each byte is to be read once, in memory that does not grow."""
        found = [] if self.read == self.written else [f"of {self.written:,} bytes {self.read:,} were read"]
        if self.growth > GROWTH:
            found.append(f"memory grew by {self.growth:.0f} MB")
        if max(self.logs) > follower.MAX_FORMER + 4:
            found.append(f"{max(self.logs)} logs were kept")
        return found


def _pieces(size: int) -> Iterator[bytes]:
    """Yield so many bytes of a log again and again, the numbers of steps rising."""
    text = b"".join(stream("verbose", min(size, 4 << 20), 1))
    for minute in itertools.count():  # no two rotated files end alike
        step = b"\nstep %07d/9999999 loss 2.5\n" % minute
        yield (text * (size // len(text) + 1))[: max(0, size - len(step))] + step


def _rotate(log: Path, style: Style, minute: int) -> None:
    if style == "dates":
        moved = log.with_name(f"{log.name}-20260102-{minute // 60:02d}{minute % 60:02d}")
        log.rename(moved)
        # Packed at the next rotation, as logrotate's delaycompress does.
        for older in sorted(log.parent.glob(f"{log.name}-*[0-9]"))[:-1]:
            older.with_name(older.name + ".gz").write_bytes(gzip.compress(older.read_bytes(), 1))
            older.unlink()
        for oldest in sorted(log.parent.glob(f"{log.name}-*"))[:-KEPT]:
            oldest.unlink()
        return
    for number in range(KEPT, 0, -1):
        older = log.with_name(f"{log.name}.{number}") if number > 1 else log.with_name(f"{log.name}.1")
        if older.exists():
            if number == KEPT:
                older.unlink()
            else:
                older.rename(log.with_name(f"{log.name}.{number + 1}"))
    log.rename(log.with_name(f"{log.name}.1"))


def simulate(folder: Path, style: Style, whole_folder: bool, per_minute: int, hours: int = 24) -> Day:
    """Follow a log, or the folder that it lies in, for so many hours."""
    day, clock, log = Day(), Clock(), folder / "train.log"
    pieces = _pieces(per_minute)
    day.written += log.write_bytes(next(pieces))
    with patch.object(follower, "time", clock.module()), patch.object(followed_log, "time", clock.module()):
        jobs = Follower([str(folder if whole_folder else log)], None, load.load())
        for minute in range(60 * hours):
            if minute % EVERY == EVERY - 1:
                _rotate(log, style, minute)
            with log.open("ab") as target:
                day.written += target.write(next(pieces))
            for seconds in (20, 40):
                clock.passed += seconds
                day.read += jobs.poll()
                while jobs.behind:
                    day.read += jobs.poll()
            if minute % 60 == 59:
                jobs.observations()
                gc.collect()
                day.memory.append(resident())
                day.logs.append(len(jobs.sources()))
        jobs.finish()
    return day
