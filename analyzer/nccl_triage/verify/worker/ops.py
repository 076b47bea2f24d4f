"""The table of collectives: OpType of ProcessGroupNCCL -> torch.distributed call, shapes, check, bus bandwidth.

``n`` is NumelIn of the log's line, ``w`` the size of the process group. The arithmetic of sizes and bus bandwidth is
that of nccl-tests (doc/PERFORMANCE.md); the OpTypes are those of torch/csrc/distributed/c10d/Types.hpp and
ProcessGroupNCCL.cpp. Nothing here imports torch: the planner reads this table without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from . import collectives
from .collectives import Prepared
from .payload import PIECE, Call

#: NumelIn of coalesced operations whose size the log does not know (size_t of -1).
UNKNOWN_NUMEL = 2**64 - 1


class Operation(NamedTuple):
    """One row of the table: how to issue an OpType.

    ``size`` says which message counts as S of the bandwidth: "in" (n elements), "all" (n of every rank) or "none".
    ``ring`` tells whether a bus moves (w-1)/w of S (``double``: twice), as nccl-tests has it; otherwise the factor is 1.
    ``divides``: n is split over the ranks, so it is rounded to a multiple of w. ``holds`` are the elements that a rank
    holds at most, as multiples of n, of n w and of n/w: its buffers, and what torch copies in between (lists of tensors
    are made one on NCCL, too; Gloo copies more; measured on torch 2.13).
    """

    name: str
    calls: str
    prepare: Callable[[Call], Prepared]
    holds: tuple[int, int, int] = (1, 0, 0)
    size: str = "in"
    ring: bool = False
    double: bool = False
    divides: bool = False
    pair: bool = False
    reduces: bool = False

    @property
    def symmetric(self) -> bool:
        """Whether every rank waits for every other, so that times in the collective can be compared."""
        return self.name == "BARRIER" or (self.ring and self.name not in ("GATHER", "SCATTER"))

    @property
    def rooted(self) -> bool:
        """Whether one of the ranks is the source or the target."""
        return self.name in ("BROADCAST", "REDUCE", "GATHER", "SCATTER")

    @property
    def moves(self) -> bool:
        """Whether there are data whose result is checked and whose time is measured."""
        return self.name != "INIT"

    def numel_out(self, numel: int, world: int) -> int:
        """Return NumelOut as the log would print it."""
        if self.size == "all":
            return numel * world
        return max(1, numel // world) if self.divides and self.reduces else numel

    def bus_factor(self, world: int) -> float:
        """Return bus bandwidth / algorithm bandwidth."""
        if not self.ring:
            return 1.0
        return (2.0 if self.double else 1.0) * (world - 1) / world

    def bytes(self, numel: int, world: int, element: int) -> int:
        """Return S of the bandwidth in bytes; 0 where no bandwidth is defined."""
        if self.size == "none":
            return 0
        return numel * element * (world if self.size == "all" else 1)

    def memory(self, numel: int, world: int, element: int) -> int:
        """Return the bytes that one rank holds at most: buffers and copies, and the pieces that are compared."""
        whole, all_of_them, share = self.holds
        held = whole * numel + all_of_them * numel * world + share * -(-numel // world)
        return held * element + _PIECES * min(PIECE, numel * element * (world if all_of_them else 1)) + _LITTLE

    def fitting(self, numel: int, world: int, element: int, room: int) -> int:
        """Return the most elements, ``numel`` at most and 1 at least, for which a rank needs no more than ``room`` bytes."""
        low, high = 1, numel
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.memory(middle, world, element) <= room else (low, middle - 1)
        return low


#: Pieces of a pattern that are alive at once (it, what it is made of, a comparison), and bytes of all that is small.
_PIECES, _LITTLE = 6, 1 << 16


def _rows() -> Iterator[Operation]:
    c = collectives
    yield Operation("ALLREDUCE", "all_reduce", c.all_reduce, ring=True, double=True, reduces=True)
    yield Operation(
        "ALLREDUCE_COALESCED", "all_reduce_coalesced", c.all_reduce_coalesced, (2, 0, 0),
        ring=True, double=True, reduces=True,
    )  # fmt: skip
    yield Operation("BROADCAST", "broadcast", c.broadcast)
    yield Operation("REDUCE", "reduce", c.reduce, reduces=True)
    yield Operation("_ALLGATHER_BASE", "all_gather_into_tensor", c.all_gather_base, (1, 2, 0), size="all", ring=True)
    yield Operation("ALLGATHER", "all_gather", c.all_gather, (1, 2, 0), size="all", ring=True)
    yield Operation(
        "ALLGATHER_coalesced", "allgather_into_tensor_coalesced", c.all_gather_coalesced, (2, 2, 0),
        size="all", ring=True,
    )  # fmt: skip
    yield Operation(
        "_REDUCE_SCATTER_BASE", "reduce_scatter_tensor", c.reduce_scatter_base, (2, 0, 1),
        ring=True, divides=True, reduces=True,
    )  # fmt: skip
    yield Operation(
        "REDUCE_SCATTER", "reduce_scatter", c.reduce_scatter, (2, 0, 1), ring=True, divides=True, reduces=True
    )
    yield Operation("ALLTOALL_BASE", "all_to_all_single", c.all_to_all_base, (2, 0, 0), ring=True, divides=True)
    yield Operation("ALLTOALL", "all_to_all", c.all_to_all, (4, 0, 0), ring=True, divides=True)
    yield Operation("SEND", "send", c.point_to_point, pair=True)
    yield Operation("RECV", "recv", c.point_to_point, pair=True)
    yield Operation("COALESCED", "batch_isend_irecv", c.ring, (2, 0, 0))
    yield Operation("GATHER", "gather", c.gather, (1, 2, 0), size="all", ring=True)
    yield Operation("SCATTER", "scatter", c.scatter, (1, 1, 0), size="all", ring=True)
    yield Operation("BARRIER", "barrier", c.barrier, (0, 0, 0), size="none")
    yield Operation("INIT", "init_process_group", c.nothing, (0, 0, 0), size="none")


OPERATIONS: dict[str, Operation] = {row.name: row for row in _rows()}

#: Bytes of one element.
DTYPES: dict[str, int] = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


def operation(name: str) -> Operation:
    """Return the row of an OpType; raises KeyError for an unknown one."""
    return OPERATIONS[name]
