"""The state of a followed job: steps, the slowest rank, and how long each host has been silent."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nccl_triage import steps
from nccl_triage.engine.schema import RuleSet
from nccl_triage.follow.follower import Follower
from nccl_triage.follow.job_state import JobGlance, JobState, SlowRank


class Job:
    """Logs that grow by hand, and a clock of their lines."""

    def __init__(self, folder: Path, rules: RuleSet) -> None:
        self.folder = folder
        self.write(0, "starting\n")
        self.follower = Follower([str(folder)], None, rules)
        self.glance = JobGlance(self.follower)

    def path(self, rank: int) -> Path:
        return self.folder / f"train_gpunode{rank // 2 + 1}_rank{rank}.log"

    def write(self, rank: int, text: str) -> None:
        with self.path(rank).open("a") as stream:
            stream.write(text)

    def read(self) -> JobState:
        self.follower._next_look = 0.0
        for _ in range(3):
            self.follower.poll()
        return self.glance.look(time.time())


@pytest.fixture
def job(tmp_path: Path, rules: RuleSet) -> Job:
    return Job(tmp_path, rules)


def test_a_job_that_has_said_nothing(job: Job) -> None:
    found = job.read()
    assert (found.logs, found.ranks, found.step, found.slowest) == (1, 1, None, None)


def test_steps_and_ranks(job: Job) -> None:
    for step in range(1, 5):
        for rank in range(4):
            job.write(rank, f"step {step}/900 loss 3.1\n")
    found = job.read()
    assert (found.logs, found.ranks, found.step, found.total, found.slowest) == (4, 4, 4, 900, None)
    assert {host for host, _ in found.hosts} == {"gpunode1", "gpunode2"}
    assert all(seconds < 30 for _, seconds in found.hosts)


def test_a_rank_two_steps_behind_is_the_slowest(job: Job) -> None:
    for step in range(1, 9):
        for rank in range(4):
            if rank != 3 or step < 7:
                job.write(rank, f"step {step}/900 loss 3.1\n")
    assert job.read().slowest == SlowRank(3, "gpunode2", 6)


def test_one_step_behind_counts_only_after_a_while(job: Job) -> None:
    for step in range(1, 4):
        for rank in range(2):
            if rank or step < 3:
                job.write(rank, f"step {step}/900 loss 3.1\n")
    assert job.read().slowest is None
    assert job.glance.look(time.time() + 60).slowest == SlowRank(0, "gpunode1", 2)


def test_counters_of_different_lines_are_not_compared(job: Job) -> None:
    for step in range(1, 9):
        job.write(0, f"step {step}/900 loss 3.1\n")
    job.write(1, "{'loss': 1.5, 'grad_norm': 2.0, 'learning_rate': 1e-05, 'epoch': 0.1}\nstep 1 of warm-up\n")
    assert job.read().slowest is None


def test_the_most_silent_host_comes_first_and_any_line_counts(job: Job) -> None:
    for rank in range(4):
        job.write(rank, "step 1/900 loss 3.1\n")
    job.read()
    for process in job.follower.heartbeats.processes.values():
        process.heard -= 100
    for log in job.follower.logs:
        log.grown = time.monotonic() - 100
    job.write(0, "a line that means nothing to anybody\n")
    (first, silent), (second, spoke) = job.read().hosts
    assert (first, second) == ("gpunode2", "gpunode1")
    assert 99 < silent < 130
    assert spoke < 30


def test_without_names_of_hosts_there_is_one_silence(tmp_path: Path, rules: RuleSet) -> None:
    path = tmp_path / "train.log"
    path.write_text("rank 0 step 1/9 loss 3\n")
    follower = Follower([str(path)], None, rules)
    follower.poll()
    follower.poll()
    found = JobGlance(follower).look(time.time() + 7)
    assert [host for host, _ in found.hosts] == [None]
    assert 6 < found.hosts[0].seconds < 40


def test_the_rank_with_the_longest_steps_is_found_by_their_durations(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 30):
        for rank in range(4):
            seconds = 3.2 if rank == 2 else 2.0
            job.write(rank, f"step:{step} - step_time:{seconds + 0.01 * (step % 3)} - loss:{3.0}\n")
    found = job.read()
    assert found.slowest is not None
    assert (found.slowest.rank, found.slowest.host, found.slowest.step) == (2, "gpunode2", None)
    assert found.slowest.ratio == pytest.approx(1.6, abs=0.05)

    def refuse(observations: object) -> object:
        raise AssertionError("compared again at once")

    monkeypatch.setattr(steps, "observe", refuse)
    assert job.read().slowest == found.slowest
