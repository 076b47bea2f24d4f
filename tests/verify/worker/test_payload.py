"""What ranks bring and what must come out, for worlds that nobody can start here."""

from __future__ import annotations

import itertools
import time

import pytest

from nccl_triage.verify.worker import payload
from nccl_triage.verify.worker.ops import DTYPES

#: Dtypes in which sums are soon inexact, and one in which they never are.
NARROW = ("float16", "bfloat16", "int8", "uint8", "bool", "float32")


def test_the_closed_forms() -> None:
    """For worlds that nobody can start here: exact in every dtype, in any order, and different by rank and iteration."""
    torch = pytest.importorskip("torch", reason="the closed forms are tensors")
    for dtype, world in itertools.product(NARROW, (1, 4, 39, 40, 82, 83, 128)):
        calls = [payload.Call(torch, None, rank, world, 0, getattr(torch, dtype), "cpu") for rank in range(world)]
        for iteration, start in ((0, 0), (3, 5)):
            parts = torch.stack([payload.added(call, iteration, 140, start) for call in calls])
            exact = parts.to(torch.float64).amax(0) if dtype == "bool" else parts.to(torch.float64).sum(0)
            sums = payload.total(calls[0], iteration, 140, start)
            assert torch.equal(sums.to(torch.float64), exact), (dtype, world)
            for order in () if dtype == "bool" else (parts, parts.flip(0)):
                running = torch.zeros_like(sums)
                for part in order:
                    running += part
                assert torch.equal(running, sums), (dtype, world)
            assert not torch.equal(sums, payload.total(calls[0], iteration + 1, 140, start)), (dtype, world, "stale")
            share = payload.total(calls[0], iteration, 140, start + 64)
            assert not torch.equal(sums, share) or 64 % payload._period(calls[0]) == 0, (
                dtype,
                world,
                "another's share",
            )
    for dtype in DTYPES:
        call = payload.Call(torch, None, 0, 8, 0, getattr(torch, dtype), "cpu")
        wanted = [((11 + index) * 31 + 5 * 17 + 2 * 7) % (2 if dtype == "bool" else 97) for index in range(97)]
        assert payload.moved(call, 5, 2, 200, 11).tolist() == [*wanted, *wanted, *wanted[:6]], dtype
        assert not torch.equal(payload.moved(call, 0, 0, 97), payload.moved(call, 1, 0, 97))
        assert not torch.equal(payload.moved(call, 0, 0, 97), payload.moved(call, 0, 1, 97))


def test_the_closed_form_of_a_large_world_takes_no_time() -> None:
    """The parent's deadline runs while a rank compares."""
    torch = pytest.importorskip("torch", reason="the closed forms are tensors")
    call = payload.Call(torch, None, 7, 4096, 0, torch.bfloat16, "cpu")
    started = time.monotonic()
    assert int(payload.total(call, 0, 1 << 16).sum(dtype=torch.float64)) == (1 << 16) - (1 << 16) // 4097
    assert time.monotonic() - started < 2.0
