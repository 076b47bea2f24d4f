"""How each operation of the table is issued: its buffers, its inputs, its call and its check.

Buffers are made once; inputs are written before the call and outside of what is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .payload import Call, put_added, put_moved, wrong_moved, wrong_total


class Prepared(NamedTuple):
    """An operation with its buffers.

    ``fill(iteration)`` writes the inputs, ``issue()`` issues the collective, and ``wrong(iteration)`` counts the elements
    that differ from the closed-form result. After several calls with one filling a reduction in place has no closed form.
    """

    fill: Callable[[int], None]
    issue: Callable[[], Any]
    wrong: Callable[[int], int]


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


def _share(call: Call) -> int:
    return max(1, call.numel // call.world)


def all_reduce(call: Call) -> Prepared:
    """all_reduce of n elements, in place."""
    x = _empty(call, call.numel)
    return Prepared(
        lambda iteration: put_added(call, x, iteration),
        lambda: call.dist.all_reduce(x, op=_reduction(call)),
        lambda iteration: wrong_total(call, x, iteration),
    )


def all_reduce_coalesced(call: Call) -> Prepared:
    """all_reduce of several tensors of n elements together."""
    size = max(1, call.numel // call.coalesced)
    parts = [_empty(call, size) for _ in range(call.coalesced)]

    def fill(iteration: int) -> None:
        for k, part in enumerate(parts):
            put_added(call, part, iteration, k)

    return Prepared(
        fill,
        lambda: call.dist.all_reduce_coalesced(parts, op=_reduction(call)),
        lambda iteration: sum(wrong_total(call, part, iteration, k) for k, part in enumerate(parts)),
    )


def broadcast(call: Call) -> Prepared:
    """Broadcast of n elements from the root."""
    x = _empty(call, call.numel)

    def fill(iteration: int) -> None:
        if call.rank == call.root:
            put_moved(call, x, call.root, iteration)

    return Prepared(
        fill,
        lambda: call.dist.broadcast(x, src=call.root),
        lambda iteration: wrong_moved(call, x, call.root, iteration),
    )


def reduce(call: Call) -> Prepared:
    """Reduce of n elements to the root."""
    x = _empty(call, call.numel)
    return Prepared(
        lambda iteration: put_added(call, x, iteration),
        lambda: call.dist.reduce(x, dst=call.root, op=_reduction(call)),
        lambda iteration: wrong_total(call, x, iteration) if call.rank == call.root else 0,
    )


def _gathered_wrong(call: Call, slices: Any, iteration: int, start: int = 0) -> int:
    return sum(wrong_moved(call, part, r, iteration, start) for r, part in enumerate(slices))


def all_gather_base(call: Call) -> Prepared:
    """all_gather of n elements a rank into one tensor."""
    x, out = _empty(call, call.numel), _empty(call, call.numel * call.world)
    names = ("all_gather_single", "all_gather_into_tensor", "_all_gather_base")
    return Prepared(
        lambda iteration: put_moved(call, x, call.rank, iteration),
        lambda: _named(call, *names)(out, x),
        lambda iteration: _gathered_wrong(call, out.chunk(call.world), iteration),
    )


def all_gather(call: Call) -> Prepared:
    """all_gather of n elements a rank into a list of tensors."""
    x, out = _empty(call, call.numel), [_empty(call, call.numel) for _ in range(call.world)]
    return Prepared(
        lambda iteration: put_moved(call, x, call.rank, iteration),
        lambda: call.dist.all_gather(out, x),
        lambda iteration: _gathered_wrong(call, out, iteration),
    )


def all_gather_coalesced(call: Call) -> Prepared:
    """all_gather of several tensors of together n elements a rank."""
    size = max(1, call.numel // call.coalesced)
    parts = [_empty(call, size) for _ in range(call.coalesced)]
    outs = [_empty(call, size * call.world) for _ in range(call.coalesced)]

    def fill(iteration: int) -> None:
        for k, part in enumerate(parts):
            put_moved(call, part, call.rank, iteration, k)

    def issue() -> None:
        group = call.dist.distributed_c10d._get_default_group()
        group.allgather_into_tensor_coalesced(outs, parts).wait()

    return Prepared(
        fill,
        issue,
        lambda iteration: sum(_gathered_wrong(call, out.chunk(call.world), iteration, k) for k, out in enumerate(outs)),
    )


def reduce_scatter_base(call: Call) -> Prepared:
    """reduce_scatter of n elements in one tensor to n/w."""
    size = _share(call)
    x, out = _empty(call, size * call.world), _empty(call, size)
    names = ("reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base")
    return Prepared(
        lambda iteration: put_added(call, x, iteration),
        lambda: _named(call, *names)(out, x, op=_reduction(call)),
        lambda iteration: wrong_total(call, out, iteration, call.rank * size),
    )


def reduce_scatter(call: Call) -> Prepared:
    """reduce_scatter of a list of w tensors of n/w elements."""
    size = _share(call)
    x, out = _empty(call, size * call.world), _empty(call, size)
    parts = list(x.chunk(call.world))
    return Prepared(
        lambda iteration: put_added(call, x, iteration),
        lambda: call.dist.reduce_scatter(out, parts, op=_reduction(call)),
        lambda iteration: wrong_total(call, out, iteration, call.rank * size),
    )


def _exchanged_wrong(call: Call, slices: Any, iteration: int, size: int) -> int:
    return sum(wrong_moved(call, part, r, iteration, call.rank * size) for r, part in enumerate(slices))


def all_to_all_base(call: Call) -> Prepared:
    """all_to_all of n elements in one tensor, n/w to each rank."""
    size = _share(call)
    x, out = _empty(call, size * call.world), _empty(call, size * call.world)
    return Prepared(
        lambda iteration: put_moved(call, x, call.rank, iteration),
        lambda: call.dist.all_to_all_single(out, x),
        lambda iteration: _exchanged_wrong(call, out.chunk(call.world), iteration, size),
    )


def all_to_all(call: Call) -> Prepared:
    """all_to_all of a list of w tensors of n/w elements."""
    size = _share(call)
    x, out = _empty(call, size * call.world), [_empty(call, size) for _ in range(call.world)]
    parts = list(x.chunk(call.world))
    return Prepared(
        lambda iteration: put_moved(call, x, call.rank, iteration),
        lambda: call.dist.all_to_all(out, parts),
        lambda iteration: _exchanged_wrong(call, out, iteration, size),
    )


def point_to_point(call: Call) -> Prepared:
    """Send n elements from one rank of the pair, receive at the other."""
    source, target = call.pair
    x = _empty(call, call.numel)

    def fill(iteration: int) -> None:
        if call.rank == source:
            put_moved(call, x, source, iteration)

    def issue() -> None:
        if call.rank == source:
            call.dist.send(x, dst=target)
        elif call.rank == target:
            call.dist.recv(x, src=source)

    return Prepared(
        fill, issue, lambda iteration: wrong_moved(call, x, source, iteration) if call.rank == target else 0
    )


def ring(call: Call) -> Prepared:
    """Send to the next rank and receive from the one before, in one group: what batch_isend_irecv does."""
    own, x = _empty(call, call.numel), _empty(call, call.numel)
    after, before = (call.rank + 1) % call.world, (call.rank - 1) % call.world

    def issue() -> None:
        if call.world == 1:
            x.copy_(own)
            return
        moves = [call.dist.P2POp(call.dist.isend, own, after), call.dist.P2POp(call.dist.irecv, x, before)]
        for work in call.dist.batch_isend_irecv(moves):
            work.wait()

    return Prepared(
        lambda iteration: put_moved(call, own, call.rank, iteration),
        issue,
        lambda iteration: wrong_moved(call, x, before, iteration),
    )


def gather(call: Call) -> Prepared:
    """Gather n elements a rank to the root."""
    x = _empty(call, call.numel)
    out = [_empty(call, call.numel) for _ in range(call.world)] if call.rank == call.root else None
    return Prepared(
        lambda iteration: put_moved(call, x, call.rank, iteration),
        lambda: call.dist.gather(x, out, dst=call.root),
        lambda iteration: 0 if out is None else _gathered_wrong(call, out, iteration),
    )


def scatter(call: Call) -> Prepared:
    """Scatter n elements to each rank from the root."""
    x = _empty(call, call.numel)
    parts = [_empty(call, call.numel) for _ in range(call.world)] if call.rank == call.root else None

    def fill(iteration: int) -> None:
        for r, part in enumerate(parts or ()):
            put_moved(call, part, r, iteration)

    return Prepared(
        fill,
        lambda: call.dist.scatter(x, parts, src=call.root),
        lambda iteration: wrong_moved(call, x, call.rank, iteration),
    )


def barrier(call: Call) -> Prepared:
    """Wait for all ranks."""
    return Prepared(lambda iteration: None, lambda: call.dist.barrier(), lambda iteration: 0)


def nothing(call: Call) -> Prepared:
    """Issue nothing: the group is the experiment."""
    return Prepared(lambda iteration: None, lambda: None, lambda iteration: 0)
