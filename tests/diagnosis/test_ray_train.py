"""Ray Train: the controller says which process is which rank, and shows what ranks raised; victims are shown as well."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

STARTED = """(TrainController pid=400) Started training worker group of size 3:
(TrainController pid=400) - (ip=10.0.0.7, pid=501) world_rank=0, local_rank=0, node_rank=0
(TrainController pid=400) - (ip=10.0.0.7, pid=502) world_rank=1, local_rank=1, node_rank=0
(TrainController pid=400) - (ip=10.0.0.8, pid=601) world_rank=2, local_rank=0, node_rank=1
"""
RAISED = """Traceback (most recent call last):
  File "/app/train.py", line 10, in loop
    scores = reward(batch)
ValueError: 3 scores for 4 prompts
"""
LOST = """(RayTrainWorker pid=501) Error in training function:
(RayTrainWorker pid=501) Traceback (most recent call last):
(RayTrainWorker pid=501)   File "/app/train.py", line 16, in loop
(RayTrainWorker pid=501)     dist.all_reduce(x)
(RayTrainWorker pid=501) RuntimeError: [/gloo/transport/tcp/pair.cc:537] Read error [10.0.0.7]:63620: Connection reset by peer
"""
FAILED = """ray.train.WorkerGroupError: Training failed due to worker errors:
[Rank {rank} Error Snippet]:
"""
DEAD = """A worker health check failed.
Worker info: Worker(
  actor=Actor(RayTrainWorker, d751),
)
The actor died unexpectedly before finishing this task.
\tclass_name: RayTrainWorker
\tactor_id: d751
\tpid: {pid}
\tip: 10.0.0.8
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.
"""


def of_worker(pid: int, text: str) -> str:
    return "".join(f"(RayTrainWorker pid={pid}) {line}" for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    "text",
    [
        STARTED + of_worker(502, RAISED) + LOST + FAILED.format(rank=1) + RAISED,
        STARTED.replace("(ip", "(node_id=4f3c, ip").replace("TrainController", "TorchTrainer") + of_worker(502, RAISED),
        FAILED.format(rank=1) + RAISED,
    ],
    ids=["all of it", "the form of earlier versions", "the driver's end alone"],
)
def test_the_rank_that_raised(text: str, rules: RuleSet) -> None:
    top = diagnose_text(text, rules).candidates[0]
    assert (top.id, [culprit.rank for culprit in top.culprits]) == ("application-exception", [1])


def test_the_rank_that_died(rules: RuleSet) -> None:
    top = diagnose_text(STARTED + LOST + FAILED.format(rank=2) + DEAD.format(pid=601), rules).candidates[0]
    assert (top.id, [culprit.rank for culprit in top.culprits]) == ("process-crashed", [2])


def test_a_victim_whose_time_out_is_shown_is_not_blamed(rules: RuleSet) -> None:
    late = "".join(
        of_worker(
            pid,
            "RuntimeError: [/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 15000ms for recv operation to complete\n",
        )
        for pid in (501, 502)
    )
    top = diagnose_text(STARTED + late + FAILED.format(rank=0), rules).candidates[0]
    assert (top.id, [culprit.rank for culprit in top.culprits]) == ("straggler", [2])


def test_a_driver_that_is_told_to_stop(rules: RuleSet) -> None:
    stopped = "*** SIGTERM received at time=1795391651 on cpu 0 ***\n"
    assert diagnose_text(STARTED + stopped, rules).candidates[0].id == "job-preempted"
    after = diagnose_text(STARTED + of_worker(502, RAISED) + stopped, rules).candidates[0]
    assert after.id == "application-exception"
