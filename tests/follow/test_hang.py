"""When a silence is suspicious: times are made up, so nothing here depends on how fast this machine is."""

from __future__ import annotations

import pytest

from nccl_triage.follow.hang import HangSuspicion, describe, limit, suspect
from nccl_triage.follow.heartbeats import Heartbeats
from nccl_triage.observations.event import Context, Event
from nccl_triage.render import phrases

START = 1_000_000.0
KINDS = {
    "training.step_loss": "step",
    "training.finished": "job.finished",
    "training.checkpoint_saving": "task.started",
}


class Job:
    """A job whose lines are heard at times of our choice."""

    def __init__(self, ranks: int = 4) -> None:
        self.heartbeats = Heartbeats()
        self.now = START
        self.line = 0
        self.ranks = ranks

    def say(
        self, rank: int | None, text: str, signature: str = "training.step_loss", time: float | None = None,
        part: int = 0, **fields: str,
    ) -> None:  # fmt: skip
        self.line += 1
        role = "progress" if signature in ("training.step_loss", "training.finished") else "context"
        context, kind = Context(rank=rank, time=time), KINDS.get(signature, "note")
        event = Event(signature, "train.log", self.line, text, context, role, dict(fields), kind=kind)
        self.heartbeats.note(event, self.now, part)

    def steps(self, count: int, seconds: float, first: int = 1, live: bool = True, **options: bool) -> None:
        for step in range(first, first + count):
            self.now += seconds
            for rank in range(self.ranks):
                stamped = self.now if options.get("stamped") else None
                self.say(rank, f"step {step}", time=stamped, step=str(step))
            if live:
                self.heartbeats.tick(self.now, live=True)
        if not live:
            self.heartbeats.tick(self.now, live=False)

    def suspicion(self, after: float, factor: float = 10.0) -> HangSuspicion | None:
        return suspect(self.heartbeats, self.now + after, factor, lambda event: event.context.rank)


def test_ten_usual_steps_without_one_are_suspicious() -> None:
    job = Job()
    job.steps(8, 30.0)
    assert job.suspicion(299) is None
    found = job.suspicion(301)
    assert found is not None
    assert (found.since, found.seconds, found.usual, found.limit) == (job.now, 301.0, 30.0, 300.0)
    assert job.suspicion(301, factor=20.0) is None


def test_never_before_a_minute_and_never_without_some_steps() -> None:
    job = Job()
    job.steps(4, 0.1)
    assert job.suspicion(10_000) is None, "start-up is slow on purpose"
    job.steps(1, 0.1, first=5)
    assert job.suspicion(59) is None
    assert job.suspicion(61) is not None


def test_a_pause_that_ended_well_is_remembered() -> None:
    job = Job()
    job.steps(6, 1.0)
    job.steps(1, 200.0, first=7)  # an evaluation
    job.steps(5, 1.0, first=8)
    assert job.suspicion(390) is None
    assert job.suspicion(410) is not None


def test_an_announced_pause_gets_more_time() -> None:
    job = Job()
    job.steps(6, 1.0)
    job.say(0, "Saving model checkpoint to /ckpt", "training.checkpoint_saving")
    assert job.suspicion(599) is None
    found = job.suspicion(601)
    assert found is not None
    assert found.pause is not None
    job.steps(2, 1.0, first=7)
    assert job.suspicion(61) is not None, "after the next step it is over"


@pytest.mark.parametrize("last", ["finished", "counted"])
def test_a_job_that_is_done_may_be_silent(last: str) -> None:
    job = Job()
    job.steps(6, 1.0)
    if last == "finished":
        job.say(0, "training finished", "training.finished")
    else:
        job.say(0, "step 7/7", step="7", total="7")
        job.heartbeats.tick(job.now, live=True)
    assert job.suspicion(100_000) is None


def test_stamps_tell_how_long_steps_take_where_output_comes_in_bursts() -> None:
    """A program that buffers its output prints a hundred steps at once."""
    stamped = Job()
    stamped.steps(50, 2.0, live=False, stamped=True)
    assert stamped.heartbeats.usual == 2.0
    bursts = Job()
    for burst in range(4):
        bursts.now += 100.0
        for step in range(50):
            bursts.say(0, f"step {burst * 50 + step}", step=str(burst * 50 + step))
        bursts.heartbeats.tick(bursts.now, live=True)
    assert bursts.heartbeats.usual == 2.0
    assert limit(bursts.heartbeats, 10.0) == 200.0, "twice the longest time between two bursts"


def test_who_is_silent_who_still_prints_and_who_is_behind() -> None:
    job = Job(ranks=3)
    job.steps(6, 1.0)
    job.now += 1
    for rank in (0, 2):
        job.say(rank, "step 7", step="7")
    job.heartbeats.tick(job.now, live=True)
    since = job.now
    job.now += 80
    job.say(2, "waiting for the others", "line.speaker")
    job.say(None, "scheduler: heartbeat", "line.speaker")
    found = job.suspicion(10)
    assert found is not None
    assert found.since == since
    assert [(last.rank, last.silent, last.behind) for last in found.lasts] == [
        (1, True, True),
        (0, True, False),
        (2, False, False),
    ]
    record = describe(found)
    assert (record["silent_ranks"], record["printing_ranks"], record["behind_ranks"]) == ([0, 1], [2], [1])
    assert (record["last_step"], record["last_lines"][0]["text"]) == (7, "step 6")
    english, chinese = phrases.hang_sentence(record, "en"), phrases.hang_sentence(record, "zh")
    assert "step 7, for 1 min 30 s" in english
    assert "behind: rank 1; silent: rank 0-1; still printing: rank 2" in english
    assert "沉默的 rank：0-1" in chinese
    assert "nccl-triage hang" in phrases.hang_note(record)["en"]


def test_a_log_that_names_no_rank_is_a_voice_of_its_own() -> None:
    job = Job()
    for step in range(6):
        job.now += 1
        job.say(None, f"step {step}", step=str(step))
        job.heartbeats.tick(job.now, live=True)
    found = job.suspicion(61)
    assert found is not None
    assert [(last.rank, last.event.source, last.silent) for last in found.lasts] == [(None, "train.log", True)]


def test_what_is_told_twice_counts_once_and_a_new_file_begins_anew() -> None:
    job = Job(ranks=1)
    job.steps(5, 1.0)
    job.line -= 5
    job.steps(5, 0.0)
    assert job.heartbeats.steps == 5
    job.line = 0
    job.now += 1
    job.say(0, "step 6", part=1, step="6")
    assert job.heartbeats.steps == 6
    job.heartbeats.forget("train.log")
    assert not job.heartbeats.processes


def test_what_lay_there_already_is_no_pause() -> None:
    """An old log of the same folder was written an hour before this one."""
    job = Job()
    job.steps(6, 1.0, live=False, stamped=True)
    job.now += 3600
    job.steps(6, 1.0, first=7, live=False, stamped=True)
    assert job.heartbeats.longest == 0.0
    assert limit(job.heartbeats, 10.0) == 60.0
