"""What the ranks of a small Gloo job do wrong, one function a fault; ``odd`` is the rank that does it.

Every job begins alike. Each function is run on all ranks and returns when its rank is done, or never: the recorder
dumps the ranks while they hang.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WORLD = 4
Fault = Callable[[Any, Any, int, int], None]


def _begin(dist: Any, torch: Any) -> Any:
    weights = torch.ones(16)
    for _ in range(3):
        dist.all_reduce(weights)
    dist.broadcast(weights, 0)
    return weights


def matched(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """Nothing is wrong."""
    weights = _begin(dist, torch)
    dist.all_reduce(weights)
    dist.barrier()


def operation(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank gathers where the others reduce."""
    weights = _begin(dist, torch)
    if rank == odd:
        dist.all_gather([torch.empty(16) for _ in range(WORLD)], weights)
    else:
        dist.all_reduce(weights)


def size(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank brings a tensor of another size, as of the last, smaller batch."""
    _begin(dist, torch)
    dist.all_reduce(torch.ones(24 if rank == odd else 16))


def dtype(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank brings doubles."""
    _begin(dist, torch)
    dist.all_reduce(torch.ones(16, dtype=torch.float64 if rank == odd else torch.float32))


def root(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank expects the data from another root: nothing in its record shows that, but it comes out alone, or not."""
    weights = _begin(dist, torch)
    dist.broadcast(weights, (odd + 1) % WORLD if rank == odd else (odd + 2) % WORLD)


def missing(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank never comes."""
    weights = _begin(dist, torch)
    if rank == odd:
        time.sleep(3600)
    dist.all_reduce(weights)


def skipped(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank leaves out a reduction and goes on with what comes next."""
    weights = _begin(dist, torch)
    if rank != odd:
        dist.all_reduce(torch.ones(4), async_op=True)
    dist.all_gather([torch.empty(16) for _ in range(WORLD)], weights, async_op=True)
    dist.broadcast(weights, 0, async_op=True)
    dist.all_reduce(torch.ones(8))


def inserted(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank makes a reduction of its own, as in a branch that only it takes."""
    weights = _begin(dist, torch)
    if rank == odd:
        dist.all_reduce(torch.ones(2), async_op=True)
    dist.all_gather([torch.empty(16) for _ in range(WORLD)], weights, async_op=True)
    dist.broadcast(weights, 0, async_op=True)
    dist.all_reduce(torch.ones(8))


def exchanged(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank makes two calls in the other order."""
    weights = _begin(dist, torch)
    calls = [lambda: dist.all_reduce(weights, async_op=True), lambda: dist.broadcast(torch.ones(4), 0, async_op=True)]
    for call in reversed(calls) if rank == odd else calls:
        call()
    dist.barrier()


def ahead(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank enters a barrier that nobody else knows of."""
    _begin(dist, torch)
    if rank == odd:
        dist.barrier()
    time.sleep(3600)


def circle(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """Two groups of the same ranks, called in two orders: each half waits in the group that the other comes to next."""
    one, two = dist.new_group(list(range(WORLD)), group_desc="dp"), dist.new_group(list(range(WORLD)), group_desc="ep")
    weights = _begin(dist, torch)
    for group in (one, two) if rank < WORLD // 2 else (two, one):
        dist.all_reduce(weights, group=group)


def chain(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank of a small group never comes; those who wait for it are missing in the large group."""
    small = dist.new_group([odd, (odd + 1) % WORLD], group_desc="tp")
    weights = _begin(dist, torch)
    if rank == odd:
        time.sleep(3600)
    if rank == (odd + 1) % WORLD:
        dist.all_reduce(weights, group=small)
    dist.all_reduce(weights)


def exchange(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """An all-to-all to which one rank never comes."""
    weights = _begin(dist, torch)
    if rank == odd:
        time.sleep(3600)
    dist.all_to_all_single(torch.empty(16), weights)


def slow(dist: Any, torch: Any, rank: int, odd: int) -> None:
    """One rank works longer before each step, and at last too long."""
    weights = _begin(dist, torch)
    for _ in range(8):
        time.sleep(0.12 if rank == odd else 0.02)
        for _ in range(3):
            dist.all_reduce(weights)
    if rank == odd:
        time.sleep(3600)
    dist.all_reduce(weights)


#: Fault -> what it does, which ranks do it (one set each), what a right answer is called.
FAULTS: dict[str, tuple[Fault, tuple[int, ...], str]] = {
    "matched": (matched, (-1,), "healthy"),
    "operation": (operation, (0, 1, 3), "operation"),
    "size": (size, (0, 1, 3), "size"),
    "dtype": (dtype, (0, 1, 3), "dtype"),
    "root": (root, (0, 1, 3), "state"),
    "missing": (missing, (0, 1, 3), "missing"),
    "skipped": (skipped, (0, 2, 3), "operation"),
    "inserted": (inserted, (0, 2, 3), "operation"),
    "exchanged": (exchanged, (0, 2, 3), "operation"),
    "ahead": (ahead, (0, 2), "ahead"),
    "circle": (circle, (-1,), "circle"),
    "chain": (chain, (0, 2), "missing"),
    "exchange": (exchange, (0, 3), "missing"),
    "slow": (slow, (0, 2), "missing"),
}
