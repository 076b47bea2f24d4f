"""How the cost of a diagnosis grows with an input: by what power of its size."""

from __future__ import annotations

import gc
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nccl_triage import diagnose
from nccl_triage.engine import load
from nccl_triage.render import render
from tests.hostile.shapes import Shape

#: The power of the size that time may grow with.
MOST = 1.15
#: How often what grows faster is measured again: a busy neighbour makes one measurement long.
TRIES = 3
#: Sizes that are measured, as multiples of the first.
MULTIPLES = (1, 2, 4, 8)


def seconds(shape: Shape, size: int) -> float:
    """Return what diagnosing and rendering an input takes of the processor."""
    rules = load.load()
    with tempfile.TemporaryDirectory() as name:
        shape.make(Path(name), size)
        gc.collect()
        started = time.process_time()
        document = diagnose(name, rules=rules).to_dict()
        for form in ("text", "html"):
            render(document, form)
        return time.process_time() - started


def exponent(times: Sequence[float]) -> float:
    """Return the power by which times of doubled sizes grow; the first is left out, since it is mostly the start."""
    behind = times[1:]
    return math.log2(behind[-1] / behind[0]) / (len(behind) - 1)


def measure(shape: Shape, first: int, cost: Callable[[Shape, int], float] = seconds) -> list[float]:
    """Return the times of a size and its doubles; the shortest of several measurements where they grow too fast."""
    times = [cost(shape, first * multiple) for multiple in MULTIPLES]
    for _ in range(TRIES - 1):
        if exponent(times) <= MOST:
            break
        again = [cost(shape, first * multiple) for multiple in MULTIPLES]
        times = [min(pair) for pair in zip(times, again, strict=True)]
    return times
