"""The input of each rank to a collective, and the expected result: in closed form, exact in every dtype.

torch is passed in, never imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Call:
    """What one rank needs to run an operation: torch, its place in the group, and the message."""

    torch: Any
    dist: Any
    rank: int
    world: int
    numel: int
    dtype: Any
    device: Any
    root: int = 0
    pair: tuple[int, int] = (0, 1)
    coalesced: int = 2


def _repeat(call: Call, base: list[int], count: int) -> Any:
    period = call.torch.tensor(base, device=call.device).to(call.dtype)
    return period.repeat(-(-count // len(base)))[:count].contiguous()


def moved(call: Call, rank: int, iteration: int, count: int, start: int = 0) -> Any:
    """Return what ``rank`` sends in an operation that only moves data: 97 values in turn, exact in every dtype."""
    top = 2 if call.dtype == call.torch.bool else 97
    return _repeat(call, [((start + i) * 31 + rank * 17 + iteration * 7) % top for i in range(97)], count)


def _many(call: Call) -> bool:
    """Tell whether sums of the small pattern would not be exact: bf16 has 8 bits of precision, int8 ends at 127."""
    limit = 127 if call.dtype == call.torch.int8 else 255
    return call.dtype == call.torch.bool or 3 * (call.world - 1) + 12 > limit


def _period(call: Call) -> int:
    return call.world + 1 if _many(call) else 4 * 13


def _addend(call: Call, rank: int, index: int, iteration: int) -> int:
    """Return what a rank adds at a place: the sums must differ by place and iteration, or a stale result would pass."""
    if _many(call):
        # One rank adds 1, and none at every (w+1)-th place.
        return int((index + iteration) % _period(call) == rank)
    # Rank 0 goes by 13: where 4 divides w the others' sums alone are all alike.
    return (index * 7 + rank * 3 + iteration) % 4 if rank else (index * 5 + iteration) % 13


def added(call: Call, iteration: int, count: int, start: int = 0) -> Any:
    """Return what this rank contributes to a reduction."""
    return _repeat(call, [_addend(call, call.rank, start + i, iteration) for i in range(_period(call))], count)


def total(call: Call, iteration: int, count: int, start: int = 0) -> Any:
    """Return the closed-form result of the reduction over all ranks."""
    places = range(start, start + _period(call))
    if _many(call):
        return _repeat(call, [int((place + iteration) % _period(call) != call.world) for place in places], count)
    sums = [sum(_addend(call, r, place, iteration) for r in range(call.world)) for place in places]
    return _repeat(call, sums, count)
