"""What is timed, and that all ranks leave together: on a stand-in for torch whose clock the test turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nccl_triage.verify.worker import timing
from nccl_triage.verify.worker.collectives import Prepared
from nccl_triage.verify.worker.payload import Call
from nccl_triage.verify.worker.timing import Stopwatch


class Bench:
    """A device whose operations take as long as the test says; ``others`` is the largest value of the other ranks."""

    def __init__(self, kind: str, filling: float = 1.0, issuing: float = 0.25, checking: float = 1.0) -> None:
        self.now, self.log, self.others = 0.0, [], 0.0
        self.filling, self.issuing, self.checking = filling, issuing, checking
        self.call = Call(self.torch(), self.dist(), 0, 2, 8, "float32", SimpleNamespace(type=kind))
        self.prepared = Prepared(self.fill, self.issue, self.wrong)

    def pass_(self, seconds: float, what: str) -> None:
        self.now += seconds
        self.log.append(what)

    def fill(self, iteration: int) -> None:
        self.pass_(self.filling, f"fill {iteration}")

    def issue(self) -> None:
        self.pass_(self.issuing, "issue")

    def wrong(self, iteration: int) -> int:
        self.pass_(self.checking, f"check {iteration}")
        return 1

    def torch(self) -> Any:
        bench = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing
                self.at = 0.0

            def record(self) -> None:
                self.at = bench.now

            def elapsed_time(self, end: Event) -> float:
                return (end.at - self.at) * 1000

        def tensor(values: list[float], device: Any, dtype: Any) -> Any:
            return SimpleNamespace(value=values[0], item=lambda: max(values[0], bench.others))

        return SimpleNamespace(
            cuda=SimpleNamespace(Event=Event, synchronize=lambda device: bench.log.append("synchronize")),
            tensor=tensor,
            float32="float32",
        )

    def dist(self) -> Any:
        return SimpleNamespace(
            barrier=lambda: self.log.append("barrier"),
            all_reduce=lambda tensor, op: self.log.append("agree"),
            ReduceOp=SimpleNamespace(MAX="max"),
        )

    def watch(self, **more: Any) -> Stopwatch:
        return Stopwatch(self.call, self.prepared, **more)


@pytest.fixture(params=["cpu", "cuda"])
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(request.param)
    clock = SimpleNamespace(perf_counter=lambda: made.now, monotonic=lambda: made.now)
    monkeypatch.setattr(timing, "time", clock)
    return made


def test_inputs_and_checks_are_not_timed(bench: Bench) -> None:
    found = timing.measured(bench.watch(seconds=100.0), 2)
    assert found["median"] == pytest.approx(0.25)
    assert found["seconds"] == pytest.approx([0.25] * timing.TIMED)
    assert found["wrong"] == 3, "two before, one after"
    work = [entry for entry in bench.log if entry not in ("agree", "synchronize")]
    assert work[:6] == ["fill 1", "issue", "check 1", "fill 2", "issue", "check 2"]
    assert work[6:8] == ["fill 2", "barrier"]
    assert work[8:-3] == ["issue"] * timing.TIMED, "one after the other"
    assert work[-3:] == ["fill 3", "issue", "check 3"]


@pytest.mark.parametrize(
    ("others", "iterations"),
    [(0.0, 17), (0.5, 9), (1.0, 5), (2.0, 3), (5.0, 3), (9.0, 1)],
)
def test_the_slowest_rank_says_how_often(bench: Bench, others: float, iterations: int) -> None:
    """Four seconds are for it; as many are timed on every rank, for else they would wait for each other."""
    bench.others = others
    assert len(bench.watch(seconds=4.0).timed()) == iterations


def test_a_check_that_takes_long_ends_on_all_ranks_alike(bench: Bench) -> None:
    bench.others = 50.0
    assert bench.watch(seconds=4.0).checked(100) == 1
    bench.others = 0.0
    slow = bench.watch(seconds=4.0)
    assert slow.checked(100) == 2, "2.25 s each"


def test_signs_of_life(bench: Bench) -> None:
    bench.filling = bench.checking = 0.0
    bench.issuing = 0.001
    seen: list[int] = []
    timing.measured(bench.watch(alive=seen.append), 60)
    assert seen == [20, 40, 60, 1, timing.TIMED]
    bench.issuing = 0.6
    seen.clear()
    bench.watch(alive=seen.append, seconds=100.0).checked(5)
    assert seen == [2, 4], "those that take long are told more often"


def test_before_each_timed_iteration_a_rank_may_be_slow_and_alone_does_not_wait(bench: Bench) -> None:
    def sleep(index: int) -> None:
        bench.now += 0.5

    assert set(bench.watch(before=sleep).timed()) == {0.25}
