"""What a rank computes by itself: right, timed, and the same amount everywhere."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from nccl_triage.verify.worker import compute
from nccl_triage.verify.worker.compute import Amount, LocalWork
from nccl_triage.verify.worker.progress import ProgressMarks

torch = pytest.importorskip("torch", reason="needs torch")
CPU = torch.device("cpu")
TINY = Amount(16, 1 << 10, 2)


def test_between_collectives_there_are_a_few_rounds() -> None:
    work = LocalWork(torch, CPU, TINY)
    assert work.told() == {}
    for _ in range(10):
        compute.step(work)
    assert len(work.matmul) == len(work.copy) == compute.BETWEEN
    assert set(work.told()) == {"matmul_s", "copy_s"} and all(value > 0 for value in work.told().values())


def test_a_wrong_product_is_counted() -> None:
    work = LocalWork(torch, CPU, TINY)
    work.round()
    work.check()
    assert work.wrong == 0
    work._product[3, 3] += 1
    work.check()
    assert work.wrong == 1


@pytest.mark.parametrize("amounts", [compute.LITTLE, compute.MUCH])
def test_products_are_exact_in_the_types_of_both_devices(amounts: dict[str, Amount]) -> None:
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        value = 0.25 * amounts[device].rows
        assert torch.tensor(value, dtype=dtype).item() == value


def marks_of(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setitem(compute.MUCH, "cpu", TINY)
    reading, writing = os.pipe()
    compute.alone(torch, CPU, ProgressMarks(writing, 3))
    os.close(writing)
    with os.fdopen(reading) as lines:
        return [json.loads(line) for line in lines]


def test_work_alone_tells_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, warm, done = marks_of(monkeypatch)
    assert (entered["stage"], warm["stage"], done["stage"]) == ("entered", "warm", "done")
    told = done["compute"]
    assert done["wrong"] == 0 and told["flop_s"] == pytest.approx(2 * 16**3 * 2 / told["matmul_s"])
    assert told["bytes_s"] == pytest.approx(2 * 1024 * 2 / told["copy_s"])
