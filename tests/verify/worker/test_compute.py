"""What a rank computes by itself: right, timed, and the same amount everywhere."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from nccl_triage.verify.worker import compute
from nccl_triage.verify.worker.compute import Amount, LocalWork
from nccl_triage.verify.worker.progress import ProgressMarks

TINY = Amount(16, 1 << 10, 2)


@pytest.fixture(name="torch")
def _torch() -> Any:
    """Return the module, which takes seconds to import, also for those who only collect the tests."""
    return pytest.importorskip("torch", reason="needs torch")


def test_between_collectives_there_are_a_few_rounds(torch: Any) -> None:
    work = LocalWork(torch, torch.device("cpu"), TINY)
    assert work.told() == {}
    for _ in range(10):
        compute.step(work)
    assert len(work.matmul) == len(work.copy) == compute.BETWEEN
    assert set(work.told()) == {"matmul_s", "copy_s"} and all(value > 0 for value in work.told().values())


def test_a_wrong_product_is_counted(torch: Any) -> None:
    work = LocalWork(torch, torch.device("cpu"), TINY)
    work.round()
    work.check()
    assert work.wrong == 0
    work._product[3, 3] += 1
    work.check()
    assert work.wrong == 1


@pytest.mark.parametrize("amounts", [compute.LITTLE, compute.MUCH])
def test_products_are_exact_in_the_types_of_both_devices(torch: Any, amounts: dict[str, Amount]) -> None:
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        value = 0.25 * amounts[device].rows
        assert torch.tensor(value, dtype=dtype).item() == value


def marks_of(torch: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setitem(compute.MUCH, "cpu", TINY)
    reading, writing = os.pipe()
    compute.alone(torch, torch.device("cpu"), ProgressMarks(writing, 3))
    os.close(writing)
    with os.fdopen(reading) as lines:
        return [json.loads(line) for line in lines]


def test_work_alone_tells_rates(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, warm, done = marks_of(torch, monkeypatch)
    assert (entered["stage"], warm["stage"], done["stage"]) == ("entered", "warm", "done")
    told = done["compute"]
    assert done["wrong"] == 0 and told["flop_s"] == pytest.approx(2 * 16**3 * 2 / told["matmul_s"])
    assert told["bytes_s"] == pytest.approx(2 * 1024 * 2 / told["copy_s"])
