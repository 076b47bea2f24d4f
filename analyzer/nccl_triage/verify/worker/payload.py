"""The input of each rank to a collective, and the expected result: in closed form, exact in every dtype.

Patterns repeat, so inputs are written and results compared piece by piece: beside the buffers of the collective a rank
holds little. torch is passed in, never imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

#: Bytes of a pattern that are held at once.
PIECE = 8 << 20
#: Elements after which the pattern of an operation that only moves data repeats.
MOVED = 97
#: Dtypes of one byte that are moved and compared as bits: few whole numbers are exact in them.
BITS = ("float8_e4m3fn", "float8_e5m2")


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

    @property
    def bits(self) -> bool:
        """Whether elements are bits that nothing is reckoned with."""
        return str(self.dtype).removeprefix("torch.") in BITS


def _repeat(call: Call, base: list[int], count: int) -> Any:
    period = call.torch.tensor(base, device=call.device)
    period = period.to(call.torch.uint8).view(call.dtype) if call.bits else period.to(call.dtype)
    return period.repeat(-(-count // len(base)))[:count].contiguous()


def moved(call: Call, rank: int, iteration: int, count: int, start: int = 0) -> Any:
    """Return what ``rank`` sends in an operation that only moves data: 97 values in turn, exact in every dtype."""
    top = 2 if call.dtype == call.torch.bool else MOVED
    return _repeat(call, [((start + i) * 31 + rank * 17 + iteration * 7) % top for i in range(MOVED)], count)


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


# whole tensors, piece by piece


def _pieces(tensor: Any, period: int, make: Callable[[int], Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the pieces of a tensor, each with the pattern that belongs there."""
    size = max(1, PIECE // (tensor.element_size() * period)) * period
    pattern = make(min(size, tensor.numel()))
    for piece in tensor.split(size):
        yield piece, pattern[: piece.numel()]


def _put(tensor: Any, period: int, make: Callable[[int], Any]) -> None:
    for piece, pattern in _pieces(tensor, period, make):
        piece.copy_(pattern)


def _wrong(call: Call, tensor: Any, period: int, make: Callable[[int], Any]) -> int:
    count = call.torch.zeros((), dtype=call.torch.int64, device=call.device)
    for piece, pattern in _pieces(tensor, period, make):
        if call.bits:
            piece, pattern = piece.view(call.torch.uint8), pattern.view(call.torch.uint8)
        count += call.torch.count_nonzero(piece != pattern)
    return int(count.item())


def put_moved(call: Call, tensor: Any, rank: int, iteration: int, start: int = 0) -> None:
    """Write what ``rank`` sends from its place ``start`` on."""
    _put(tensor, MOVED, lambda count: moved(call, rank, iteration, count, start))


def wrong_moved(call: Call, tensor: Any, rank: int, iteration: int, start: int = 0) -> int:
    """Return the elements that are not what ``rank`` sent from its place ``start`` on."""
    return _wrong(call, tensor, MOVED, lambda count: moved(call, rank, iteration, count, start))


def put_added(call: Call, tensor: Any, iteration: int, start: int = 0) -> None:
    """Write what this rank contributes to a reduction, from the place ``start`` on."""
    _put(tensor, _period(call), lambda count: added(call, iteration, count, start))


def wrong_total(call: Call, tensor: Any, iteration: int, start: int = 0) -> int:
    """Return the elements that are not the sum of all ranks, from the place ``start`` on."""
    return _wrong(call, tensor, _period(call), lambda count: total(call, iteration, count, start))
