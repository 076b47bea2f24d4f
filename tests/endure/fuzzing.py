"""Case after case in one process: none may raise, take long, tell something else the second time, or leave memory behind."""

from __future__ import annotations

import gc
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.endure import cases
from tests.endure.memory import resident

KEPT = Path(__file__).parents[2] / "build" / "endure"
#: Seconds of the processor that a case may take.
LIMIT = 5.0
#: Tries of a case that took longer: a busy neighbour slows one down.
TRIES = 3
#: Every so manieth case is run twice.
TWICE = 5
#: Cases before memory is compared: tables fill, expressions are compiled.
WARM = 1500
#: Megabytes that a run may grow by after that, however long it is.
GROWTH = 48.0


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in a body that takes more of the processor."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass(slots=True)
class Outcome:
    """What a run has seen: cases by kind, the slowest, memory in MB over time, and what failed."""

    seed: str
    kinds: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    memory: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """Megabytes that the second half took more than what was needed when warm."""
        return max(self.memory[len(self.memory) // 2 :]) - self.memory[0] if len(self.memory) > 1 else 0.0


def attempt(case: cases.Case, twice: bool = False) -> str | None:
    """Run a case; return what is wrong with it."""
    for left in reversed(range(TRIES)):
        try:
            with _bounded(LIMIT):
                shown = case.run(case)
            break
        except TimeoutError as error:
            if not left:
                return f"{case.kind}: {error}\n{traceback.format_exc()}"
        except Exception:
            return f"{case.kind}: {traceback.format_exc()}"
    if twice and case.run(case) != shown:
        return f"{case.kind}: the second output differs"
    return None


def run(seed: str, seconds: float, most: int | None = None, first: int = 0) -> Outcome:
    """Run cases for so many seconds of the processor, or so many of them; what fails is kept."""
    found = Outcome(seed)
    ends, number = time.process_time() + seconds, first
    while time.process_time() < ends and (most is None or number - first < most):
        case = cases.make(seed, number)
        started = time.process_time()
        wrong = attempt(case, number % TWICE == 0)
        found.slowest = max(found.slowest, (time.process_time() - started, f"{seed}:{number} {case.kind}"))
        found.kinds[case.kind] += 1
        if wrong:
            place = KEPT / f"{seed}-{number}"
            case.keep(place)
            (place / "wrong.txt").write_text(wrong, "utf-8", "backslashreplace")
            found.failures.append(f"{seed}:{number} {wrong.strip().splitlines()[-1]}")
            print(f"FAILED {found.failures[-1]}; kept in {place}", file=sys.stderr, flush=True)
        number += 1
        if (number - first) % 500 == 0 and number - first >= WARM:
            gc.collect()
            found.memory.append(resident())
    if found.growth > GROWTH:
        found.failures.append(f"memory grew by {found.growth:.0f} MB")
    return found
