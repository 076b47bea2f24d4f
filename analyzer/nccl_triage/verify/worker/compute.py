"""Work of a rank's own, without any other rank: a matrix multiplication and a copy in memory, each timed.

Between collectives a little of it shows who is slow by itself, and not for waiting (a throttled GPU, a crowded core). On
its own (``alone``) it is what schedulers screen a host with before any communication. The same work on every rank, so
that times can be compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from .progress import ProgressMarks


class Amount(NamedTuple):
    """The amount of work: rows of the square matrices, bytes that are copied, and how often each is done."""

    rows: int
    copied: int
    times: int


#: A little, between collectives, and what is enough to measure a device; on the CPU (one thread) and on a GPU.
LITTLE = {"cpu": Amount(640, 24 << 20, 3), "cuda": Amount(2048, 64 << 20, 20)}
MUCH = {"cpu": Amount(768, 64 << 20, 4), "cuda": Amount(8192, 256 << 20, 20)}
#: Rounds between collectives: further ones tell nothing new.
BETWEEN = 3
#: Rounds of the work alone, after one that warms up.
ALONE = 5


class LocalWork:
    """The work on one device; matrices are made once. Times are seconds of a round."""

    def __init__(self, torch: Any, device: Any, amount: Amount) -> None:
        self._torch, self._device, self.amount = torch, device, amount
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        rows = amount.rows
        self._left = torch.full((rows, rows), 0.5, dtype=dtype, device=device)
        self._product = torch.empty((rows, rows), dtype=dtype, device=device)
        self._source = torch.zeros(amount.copied, dtype=torch.uint8, device=device)
        self._target = torch.empty_like(self._source)
        self.matmul: list[float] = []
        self.copy: list[float] = []
        #: Elements of the last product that are not what they must be (0.25 times the rows, exact in every type).
        self.wrong = 0

    def _timed(self, work: Callable[[], Any]) -> float:
        self._wait()
        started = time.perf_counter()
        for _ in range(self.amount.times):
            work()
        self._wait()
        return time.perf_counter() - started

    def _wait(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)

    def round(self) -> None:
        """Do the work once and keep how long each part took."""
        self.matmul.append(self._timed(lambda: self._torch.mm(self._left, self._left, out=self._product)))
        self.copy.append(self._timed(lambda: self._target.copy_(self._source)))

    def check(self) -> None:
        """Compare the product with the exact one."""
        self.wrong = int((self._product != 0.25 * self.amount.rows).sum().item())

    def told(self) -> dict[str, float]:
        """Return the median seconds of both parts; empty before the first round."""
        if not self.matmul:
            return {}
        return {"matmul_s": statistics.median(self.matmul), "copy_s": statistics.median(self.copy)}


def between(torch: Any, device: Any) -> LocalWork:
    """Return the little work that is done between collectives."""
    return LocalWork(torch, device, LITTLE["cuda" if device.type == "cuda" else "cpu"])


def step(work: LocalWork) -> None:
    """Do a round between two collectives, unless there were enough."""
    if len(work.matmul) < BETWEEN:
        work.round()


def alone(torch: Any, device: Any, marks: ProgressMarks) -> None:
    """Measure this device without any other rank, and tell FLOP/s and bytes/s (read and written) beside the times."""
    marks.say("entered", op="COMPUTE")
    work = LocalWork(torch, device, MUCH["cuda" if device.type == "cuda" else "cpu"])
    work.round()
    marks.say("warm", seconds=work.matmul[0] + work.copy[0], wrong=0)
    work.matmul, work.copy = [], []
    for _ in range(ALONE):
        work.round()
    work.check()
    told, amount = work.told(), work.amount
    flops = 2 * amount.rows**3 * amount.times / told["matmul_s"]
    rate = 2 * amount.copied * amount.times / told["copy_s"]
    marks.say("done", wrong=work.wrong, compute={**told, "flop_s": flops, "bytes_s": rate})
