"""Who did it: one process under two names, Ray actors by address, nodes that report their own death."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

NCCL_LINE = "h1:{pid}:{pid} [0] enqueue.cc:336 NCCL WARN Cuda failure 'invalid resource handle'\n"
RAISED = """[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/a/train.py", line 7, in <module>
[rank{rank}]:     dist.barrier()
[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, unhandled cuda error
"""


def test_the_failing_pid_is_the_only_failing_rank(rules: RuleSet) -> None:
    diagnosis = diagnose_text(NCCL_LINE.format(pid=501) + RAISED.format(rank=3), rules)
    assert diagnosis.candidates[0].culprits[0].rank == 3


@pytest.mark.parametrize(
    "text",
    [
        NCCL_LINE.format(pid=501) + NCCL_LINE.format(pid=502) + RAISED.format(rank=3),
        NCCL_LINE.format(pid=501) + RAISED.format(rank=3) + RAISED.format(rank=4),
    ],
    ids=["two pids", "two ranks"],
)
def test_with_several_failing_processes_none_is_taken_for_another(text: str, rules: RuleSet) -> None:
    assert diagnose_text(text, rules).candidates[0].culprits[0].rank is None


def test_an_actor_that_failed_in_its_constructor_goes_by_its_address(rules: RuleSet) -> None:
    text = (
        "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, "
        "ray::Engine.__init__() (pid=8515, ip=10.9.8.7, actor_id=dc00, repr=<Engine object at 0x7f>)\n"
        "AttributeError: 'torch.dtype' object has no attribute 'startswith'\n"
    )
    culprit = diagnose_text(text, rules).candidates[0].culprits[0]
    assert (culprit.address, culprit.pid) == ("10.9.8.7", 8515)


def test_a_node_that_reports_its_own_death_comes_before_one_that_others_name(rules: RuleSet) -> None:
    text = (
        '{"host_name":"head","label":"RAY_NODE_REMOVED","message":"The node with node id: 94ab and address: 10.0.0.7 and '
        'node name: 10.0.0.7 has been marked dead because the detector has missed too many heartbeats from it."}\n'
        '{"host_name":"w4","label":"RAYLET_MARKED_DEAD","message":"[Timeout] Exiting because this node manager has '
        'mistakenly been marked as dead by the GCS: GCS failed to check the health of this node for 5 times."}\n'
    )
    culprits = diagnose_text(text, rules).candidates[0].culprits
    assert [c.host for c in culprits] == ["w4", "10.0.0.7"]
