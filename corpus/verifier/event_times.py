"""CUDA's events against the clock: what the verifier measures with, on one GPU and one rank of NCCL.

    python -m corpus.verifier.event_times            # prints JSON

Each piece of work is timed in both ways at once: between two events in the stream, and by perf_counter around the call and
a synchronisation. The clock can only be the longer; by how much is the cost of calls that the events leave out.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

#: Elements of the buffers, and rounds of each after two that warm up.
SIZES, ROUNDS, WARM = (1 << 10, 1 << 20, 1 << 24), 20, 2


def both(torch: Any, work: Callable[[], Any]) -> dict[str, float]:
    """Return the median seconds of a piece of work by events and by the clock, and the least difference of the two."""
    pairs = []
    for _ in range(WARM + ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        started = time.perf_counter()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        pairs.append((begin.elapsed_time(end) / 1000, time.perf_counter() - started))
    kept = pairs[WARM:]
    return {
        "events": statistics.median(events for events, _ in kept),
        "clock": statistics.median(clock for _, clock in kept),
        "least_difference": min(clock - events for events, clock in kept),
    }


def measured() -> dict[str, Any]:
    """Return the times of copies, products and all-reduces of one rank by both ways."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    device = torch.device("cuda", 0)
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=device)
    found: dict[str, Any] = {}
    for size in SIZES:
        one, two = torch.ones(size, device=device), torch.zeros(size, device=device)
        found[f"copy {size}"] = both(torch, partial(two.copy_, one))
        found[f"all_reduce {size}"] = both(torch, partial(dist.all_reduce, one))
    matrix = torch.ones(512, 512, device=device)
    found["matmul 512"] = both(torch, partial(torch.mm, matrix, matrix))
    dist.destroy_process_group()
    return found


def main() -> int:
    """Print the times; returns 1 when events take longer than the clock that contains them."""
    found = measured()
    print(json.dumps(found, indent=1))
    return int(any(times["least_difference"] < -1e-4 for times in found.values()))


if __name__ == "__main__":
    sys.exit(main())
