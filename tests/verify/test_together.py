"""Several runs at once, each on its own hosts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.verify import runner
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, RunResult, Slot
from nccl_triage.verify.together import together
from tests.verify.simulated import Launcher, Started, World, failing, healthy, hosts, reach

FAST = Deadlines(start=2.0, store=0.6, group=0.6, entered=0.6, first=0.6, timed=0.6, grace=0.2)


def work(*places: int) -> Any:
    run = CollectiveRun(f"r{places}", tuple(Slot(place, place) for place in places), CollectiveMessage(numel=64))
    return places, lambda cluster: runner.execute(cluster, run, Path("nowhere"), FAST)


def test_each_run_gets_its_own_answers() -> None:
    def behave(started: Started) -> Any:
        return [failing() if 1 in started.places else healthy() for _ in started.places]

    with Cluster(Launcher(World(hosts(4), behave))) as cluster:
        cluster.greet(5.0)
        first, second = together(cluster, [work(0, 2), work(1, 3)])
    assert (first.outcome, second.outcome) == ("passed", "error")
    assert {trace.slot.place for trace in first.ranks.values()} == {0, 2}


def test_what_hangs_hangs_at_the_same_time() -> None:
    world = World(hosts(6), lambda started: [reach("entered") for _ in started.places])
    with Cluster(Launcher(world)) as cluster:
        cluster.greet(5.0)
        started = time.monotonic()
        found: list[RunResult] = together(cluster, [work(0, 1), work(2, 3), work(4, 5)])
        assert time.monotonic() - started < 2 * min(result.seconds for result in found)
    assert [result.outcome for result in found] == ["hung"] * 3


def test_a_host_that_is_lost_ends_its_own_run_only() -> None:
    world = World(hosts(4))
    with Cluster(Launcher(world)) as cluster:
        cluster.greet(5.0)
        world.links[1].die()
        lost, sound = together(cluster, [work(0, 1), work(2, 3)])
    assert not lost.passed and sound.passed


def test_one_host_cannot_be_in_two_runs() -> None:
    with Cluster(Launcher(World(hosts(3)))) as cluster, pytest.raises(ValueError, match="host 1"):
        together(cluster, [work(0, 1), work(1, 2)])


def test_an_interruption_ends_all() -> None:
    world = World(hosts(2), lambda started: [reach("entered") for _ in started.places])
    slow = Deadlines(start=60.0, store=60.0, group=60.0, entered=60.0, first=60.0, timed=60.0)
    run = CollectiveRun("r", (Slot(0, 0), Slot(1, 1)), CollectiveMessage(numel=64))
    with Cluster(Launcher(world)) as cluster:
        cluster.greet(5.0)
        receive, started = cluster.receive, time.monotonic()

        def interrupted(timeout: float) -> Any:
            if time.monotonic() - started > 0.3:
                raise KeyboardInterrupt
            return receive(timeout)

        cluster.receive = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            together(cluster, [((0, 1), lambda view: runner.execute(view, run, Path("nowhere"), slow))])
    assert time.monotonic() - started < 5.0
