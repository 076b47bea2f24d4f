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
        sent = payload.moved(call, 5, 2, 200, 11)
        sent = sent.view(torch.uint8) if call.bits else sent
        assert sent.tolist() == [*wanted, *wanted, *wanted[:6]], dtype
        one, other, later = (payload.moved(call, rank, turn, 97).float() for rank, turn in ((0, 0), (1, 0), (0, 1)))
        assert not torch.equal(one, other) and not torch.equal(one, later)


def test_whole_tensors_are_written_and_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="the closed forms are tensors")
    monkeypatch.setattr(payload, "PIECE", 1000)
    for dtype, count in itertools.product(DTYPES, (1, 96, 97, 98, 1234)):
        call = payload.Call(torch, None, 2, 5, 0, getattr(torch, dtype), "cpu")
        whole = torch.zeros(count, dtype=call.dtype)
        bits = whole.view(torch.uint8) if call.bits else whole
        payload.put_moved(call, whole, 1, 3, 40)
        wanted = payload.moved(call, 1, 3, count, 40)
        assert torch.equal(bits, wanted.view(torch.uint8) if call.bits else wanted), dtype
        assert payload.wrong_moved(call, whole, 1, 3, 40) == 0
        for place in {0, count // 2, count - 1}:
            bits[place] = not bits[place] if dtype == "bool" else bits[place] + 1
        assert payload.wrong_moved(call, whole, 1, 3, 40) == len({0, count // 2, count - 1}), dtype
        if not call.bits:
            payload.put_added(call, whole, 3, 7)
            assert torch.equal(whole, payload.added(call, 3, count, 7))
            whole.copy_(payload.total(call, 3, count, 7))
            assert payload.wrong_total(call, whole, 3, 7) == 0
            assert count == 1 or payload.wrong_total(call, whole, 4, 7) > 0


def test_the_closed_form_of_a_large_world_takes_no_time() -> None:
    """The parent's deadline runs while a rank compares."""
    torch = pytest.importorskip("torch", reason="the closed forms are tensors")
    call = payload.Call(torch, None, 7, 4096, 0, torch.bfloat16, "cpu")
    started = time.monotonic()
    assert int(payload.total(call, 0, 1 << 16).sum(dtype=torch.float64)) == (1 << 16) - (1 << 16) // 4097
    assert time.monotonic() - started < 2.0
