"""The table of collectives: OpType of ProcessGroupNCCL -> torch.distributed call, shapes, check, bus bandwidth.

``n`` is NumelIn of the log's line, ``w`` the size of the process group. The arithmetic of sizes and bus bandwidth is
that of nccl-tests (doc/PERFORMANCE.md); the OpTypes are those of torch/csrc/distributed/c10d/Types.hpp and
ProcessGroupNCCL.cpp. torch is passed in, never imported: the planner reads this table without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .payload import Call, added, moved, total

#: NumelIn of coalesced operations whose size the log does not know (size_t of -1).
UNKNOWN_NUMEL = 2**64 - 1


#: run(iteration) issues the collective; wrong(iteration) counts the elements that differ from the closed-form result.
Prepared = tuple[Callable[[int], None], Callable[[int], int]]


def _differs(call: Call, found: Any, wanted: Any) -> int:
    return int((found != wanted).sum().item())


def _reduction(call: Call) -> Any:
    return call.dist.ReduceOp.MAX if call.dtype == call.torch.bool else call.dist.ReduceOp.SUM


def _empty(call: Call, count: int) -> Any:
    return call.torch.zeros(count, dtype=call.dtype, device=call.device)


def _named(call: Call, *names: str) -> Any:
    """Return the first function that this torch has: newer releases renamed some."""
    for name in names:
        if hasattr(call.dist, name):
            return getattr(call.dist, name)
    raise NotImplementedError(f"torch {call.torch.__version__} has none of {', '.join(names)}")


def _all_reduce(call: Call) -> Prepared:
    x = _empty(call, call.numel)

    def run(iteration: int) -> None:
        x.copy_(added(call, iteration, call.numel))
        call.dist.all_reduce(x, op=_reduction(call))

    return run, lambda iteration: _differs(call, x, total(call, iteration, call.numel))


def _all_reduce_coalesced(call: Call) -> Prepared:
    size = max(1, call.numel // call.coalesced)
    parts = [_empty(call, size) for _ in range(call.coalesced)]

    def run(iteration: int) -> None:
        for k, part in enumerate(parts):
            part.copy_(added(call, iteration, size, k))
        call.dist.all_reduce_coalesced(parts, op=_reduction(call))

    return run, lambda iteration: sum(_differs(call, p, total(call, iteration, size, k)) for k, p in enumerate(parts))


def _broadcast(call: Call) -> Prepared:
    x = _empty(call, call.numel)

    def run(iteration: int) -> None:
        if call.rank == call.root:
            x.copy_(moved(call, call.root, iteration, call.numel))
        call.dist.broadcast(x, src=call.root)

    return run, lambda iteration: _differs(call, x, moved(call, call.root, iteration, call.numel))


def _reduce(call: Call) -> Prepared:
    x = _empty(call, call.numel)

    def run(iteration: int) -> None:
        x.copy_(added(call, iteration, call.numel))
        call.dist.reduce(x, dst=call.root, op=_reduction(call))

    def wrong(iteration: int) -> int:
        return _differs(call, x, total(call, iteration, call.numel)) if call.rank == call.root else 0

    return run, wrong


def _gathered_wrong(call: Call, slices: Any, iteration: int, size: int, start: int = 0) -> int:
    return sum(_differs(call, part, moved(call, r, iteration, size, start)) for r, part in enumerate(slices))


def _all_gather_base(call: Call) -> Prepared:
    out = _empty(call, call.numel * call.world)

    def run(iteration: int) -> None:
        gather = _named(call, "all_gather_single", "all_gather_into_tensor", "_all_gather_base")
        gather(out, moved(call, call.rank, iteration, call.numel))

    return run, lambda iteration: _gathered_wrong(call, out.chunk(call.world), iteration, call.numel)


def _all_gather(call: Call) -> Prepared:
    out = [_empty(call, call.numel) for _ in range(call.world)]

    def run(iteration: int) -> None:
        call.dist.all_gather(out, moved(call, call.rank, iteration, call.numel))

    return run, lambda iteration: _gathered_wrong(call, out, iteration, call.numel)


def _all_gather_coalesced(call: Call) -> Prepared:
    size = max(1, call.numel // call.coalesced)
    outs = [_empty(call, size * call.world) for _ in range(call.coalesced)]

    def run(iteration: int) -> None:
        parts = [moved(call, call.rank, iteration, size, k) for k in range(call.coalesced)]
        group = call.dist.distributed_c10d._get_default_group()
        group.allgather_into_tensor_coalesced(outs, parts).wait()

    return run, lambda iteration: sum(
        _gathered_wrong(call, out.chunk(call.world), iteration, size, k) for k, out in enumerate(outs)
    )


def _share(call: Call) -> int:
    return max(1, call.numel // call.world)


def _reduce_scatter_base(call: Call) -> Prepared:
    size = _share(call)
    out = _empty(call, size)

    def run(iteration: int) -> None:
        scatter = _named(call, "reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base")
        scatter(out, added(call, iteration, size * call.world), op=_reduction(call))

    return run, lambda iteration: _differs(call, out, total(call, iteration, size, call.rank * size))


def _reduce_scatter(call: Call) -> Prepared:
    size = _share(call)
    out = _empty(call, size)

    def run(iteration: int) -> None:
        parts = [part.contiguous() for part in added(call, iteration, size * call.world).chunk(call.world)]
        call.dist.reduce_scatter(out, parts, op=_reduction(call))

    return run, lambda iteration: _differs(call, out, total(call, iteration, size, call.rank * size))


def _exchanged_wrong(call: Call, slices: Any, iteration: int, size: int) -> int:
    start = call.rank * size
    return sum(_differs(call, part, moved(call, r, iteration, size, start)) for r, part in enumerate(slices))


def _all_to_all_base(call: Call) -> Prepared:
    size = _share(call)
    out = _empty(call, size * call.world)

    def run(iteration: int) -> None:
        call.dist.all_to_all_single(out, moved(call, call.rank, iteration, size * call.world))

    return run, lambda iteration: _exchanged_wrong(call, out.chunk(call.world), iteration, size)


def _all_to_all(call: Call) -> Prepared:
    size = _share(call)
    out = [_empty(call, size) for _ in range(call.world)]

    def run(iteration: int) -> None:
        parts = moved(call, call.rank, iteration, size * call.world).chunk(call.world)
        call.dist.all_to_all(out, [part.contiguous() for part in parts])

    return run, lambda iteration: _exchanged_wrong(call, out, iteration, size)


def _point_to_point(call: Call) -> Prepared:
    source, target = call.pair
    x = _empty(call, call.numel)

    def run(iteration: int) -> None:
        if call.rank == source:
            call.dist.send(moved(call, source, iteration, call.numel), dst=target)
        elif call.rank == target:
            call.dist.recv(x, src=source)

    def wrong(iteration: int) -> int:
        return _differs(call, x, moved(call, source, iteration, call.numel)) if call.rank == target else 0

    return run, wrong


def _ring(call: Call) -> Prepared:
    """Send to the next rank and receive from the one before, in one group: what batch_isend_irecv does."""
    x = _empty(call, call.numel)
    after, before = (call.rank + 1) % call.world, (call.rank - 1) % call.world

    def run(iteration: int) -> None:
        if call.world == 1:
            x.copy_(moved(call, 0, iteration, call.numel))
            return
        own = moved(call, call.rank, iteration, call.numel)
        moves = [call.dist.P2POp(call.dist.isend, own, after), call.dist.P2POp(call.dist.irecv, x, before)]
        for work in call.dist.batch_isend_irecv(moves):
            work.wait()

    return run, lambda iteration: _differs(call, x, moved(call, before, iteration, call.numel))


def _gather(call: Call) -> Prepared:
    out = [_empty(call, call.numel) for _ in range(call.world)] if call.rank == call.root else None

    def run(iteration: int) -> None:
        call.dist.gather(moved(call, call.rank, iteration, call.numel), out, dst=call.root)

    return run, lambda iteration: 0 if out is None else _gathered_wrong(call, out, iteration, call.numel)


def _scatter(call: Call) -> Prepared:
    x = _empty(call, call.numel)

    def run(iteration: int) -> None:
        parts = None
        if call.rank == call.root:
            parts = [moved(call, r, iteration, call.numel) for r in range(call.world)]
        call.dist.scatter(x, parts, src=call.root)

    return run, lambda iteration: _differs(call, x, moved(call, call.rank, iteration, call.numel))


def _barrier(call: Call) -> Prepared:
    return (lambda iteration: call.dist.barrier()), (lambda iteration: 0)


def _nothing(call: Call) -> Prepared:
    return (lambda iteration: None), (lambda iteration: 0)


class Operation(NamedTuple):
    """One row of the table: how to issue an OpType.

    ``size`` says which message counts as S of the bandwidth: "in" (n elements), "all" (n of every rank) or "none".
    ``ring`` tells whether a bus moves (w-1)/w of S (``double``: twice), as nccl-tests has it; otherwise the factor is 1.
    ``divides``: n is split over the ranks, so it is rounded to a multiple of w.
    """

    name: str
    calls: str
    prepare: Callable[[Call], Prepared]
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
        """Return the bytes that one rank holds at most: input, output, the expected result, a comparison."""
        return (numel + self.numel_out(numel, world)) * element * 2 + self.numel_out(numel, world) + (1 << 16)


OPERATIONS: dict[str, Operation] = {
    row.name: row
    for row in (
        Operation("ALLREDUCE", "all_reduce", _all_reduce, ring=True, double=True, reduces=True),
        Operation("ALLREDUCE_COALESCED", "all_reduce_coalesced", _all_reduce_coalesced, ring=True, double=True),
        Operation("BROADCAST", "broadcast", _broadcast),
        Operation("REDUCE", "reduce", _reduce),
        Operation("_ALLGATHER_BASE", "all_gather_into_tensor", _all_gather_base, size="all", ring=True),
        Operation("ALLGATHER", "all_gather", _all_gather, size="all", ring=True),
        Operation(
            "ALLGATHER_coalesced", "allgather_into_tensor_coalesced", _all_gather_coalesced, size="all", ring=True
        ),
        Operation(
            "_REDUCE_SCATTER_BASE", "reduce_scatter_tensor", _reduce_scatter_base, ring=True, divides=True, reduces=True
        ),
        Operation("REDUCE_SCATTER", "reduce_scatter", _reduce_scatter, ring=True, divides=True, reduces=True),
        Operation("ALLTOALL_BASE", "all_to_all_single", _all_to_all_base, ring=True, divides=True),
        Operation("ALLTOALL", "all_to_all", _all_to_all, ring=True, divides=True),
        Operation("SEND", "send", _point_to_point, pair=True),
        Operation("RECV", "recv", _point_to_point, pair=True),
        Operation("COALESCED", "batch_isend_irecv", _ring),
        Operation("GATHER", "gather", _gather, size="all", ring=True),
        Operation("SCATTER", "scatter", _scatter, size="all", ring=True),
        Operation("BARRIER", "barrier", _barrier, size="none"),
        Operation("INIT", "init_process_group", _nothing, size="none"),
    )
}

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
}


def operation(name: str) -> Operation:
    """Return the row of an OpType; raises KeyError for an unknown one."""
    return OPERATIONS[name]
