"""What launchers and frameworks around NCCL tell of a failure that is not the program's own."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

FENCE = (
    "slurmstepd: error:  mpi/pmix_v3: pmixp_coll_ring_reset_if_to: node1 [0]: pmixp_coll_ring.c:742: 0x152a4c02d310: "
    "collective timeout seq=0\n"
)
WAITS = "slurmstepd: error:  mpi/pmix_v3: pmixp_coll_ring_log: node1 [0]: pmixp_coll_ring.c:{line}: \t\t {what} contrib: {host}\n"
TENSORFLOW = (
    "node1:41:52 [4] ibvwrap.c:130 NCCL WARN Call to ibv_create_qp failed\n"
    "Traceback (most recent call last):\n"
    '  File "fit.py", line 64, in <module>\n'
    "    model.fit(train)\n"
    "tensorflow.python.framework.errors_impl.InternalError:  NCCL: unhandled system error. Set NCCL_DEBUG=WARN for detail.\n"
)


def test_the_node_that_a_fence_of_slurm_waits_for_is_named(rules: RuleSet) -> None:
    text = FENCE + WAITS.format(line=825, what="done", host="node3") + WAITS.format(line=827, what="wait", host="node2")
    found = diagnose_text(text, rules)
    assert found.candidates[0].id == "rendezvous-failed"
    assert [culprit.host for culprit in found.candidates[0].culprits] == ["node2"]


def test_what_tensorflow_says_of_nccl_is_no_exception_of_the_program(rules: RuleSet) -> None:
    found = diagnose_text(TENSORFLOW, rules)
    assert found.candidates[0].id == "network-ib-misconfig"
    assert found.case.fact("exception.application") is None


STEP_ENDS = (
    "srun: error: node1: task 1: {first}\n"
    "srun: Terminating StepId=41.0\n"
    "slurmstepd: error: *** STEP 41.0 ON node0 CANCELLED AT 2025-10-20T20:38:36 ***\n"
    "srun: error: node0: task 0: Terminated\n"
)


@pytest.mark.parametrize(
    ("first", "stopped"),
    [("Exited with exit code 1", False), ("Exited with exit code 143", True), ("Terminated", True)],
)
def test_a_step_of_which_a_task_failed_was_not_stopped_from_outside(first: str, stopped: bool, rules: RuleSet) -> None:
    found = diagnose_text(STEP_ENDS.format(first=first), rules)
    assert bool(found.case.value("process.terminated_only")) is stopped
    said = found.candidates[0].id == "job-preempted" if found.verdict == "diagnosed" else False
    assert said is stopped


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("libfabric:1:2::cxi:core:cxip_cq_eq_progress():531<warn> x1: Cassini Event Queue overflow detected.", "network-plugin"),
        ("libfabric:1:2::cxi:mr:cxip_do_map():90<warn> node1: cxil_map() failed: -22", "gpudirect-rdma-broken"),
    ],
)  # fmt: skip
def test_slingshot_is_at_fault_when_the_step_is_stopped_after_its_words(line: str, cause: str, rules: RuleSet) -> None:
    text = f"{line}\nsrun: error: node1: task 1: Terminated\nsrun: Force Terminated StepId=41.0\n"
    assert diagnose_text(text, rules).candidates[0].id == cause


def test_the_device_plugin_names_the_xid(rules: RuleSet) -> None:
    line = "2026/08/10 19:09:42 XidCriticalError: Xid=79 on Device=GPU-7540a9b3-eeb9-1214-1526-f93c9ea826a8, the device will go unhealthy.\n"
    assert diagnose_text(line, rules).candidates[0].id == "gpu-hardware-fault"


@pytest.mark.parametrize(
    "line",
    [
        "srun: fatal: SLURM_MEM_PER_CPU and SLURM_MEM_PER_NODE are mutually exclusive.",
        "srun: error: slurm_receive_msgs: Socket timed out on send/recv operation",
    ],
)
def test_an_error_of_slurm_that_nobody_knows_is_not_healthy(line: str, rules: RuleSet) -> None:
    step = "[rank0]: step 1/100 loss 2.31\n"
    assert diagnose_text(f"{step}{line}\n", rules).verdict == "unknown"
    assert diagnose_text(f"{line}\n{step}{step.replace('1/', '2/')}", rules).verdict == "healthy"


KILLED_FIRST = (
    "[2026-03-01 10:00:01] rank 3 step 120 loss 2.31\n"
    "[2026-03-01 10:00:02] rank 0 step 120 loss 2.31\n"
    "srun: error: node1: task 5: Killed\n"
    "srun: Terminating StepId=41.0\n"
    "slurmstepd: error: *** STEP 41.0 ON node1 CANCELLED AT 2026-03-01T10:00:09 ***\n"
    "srun: error: node1: tasks 4,6-7: Terminated\n"
    "srun: error: node0: tasks 0-3: Terminated\n"
)
CANCELLED_FIRST = (
    "[2026-03-01 10:00:02] rank 0 step 120 loss 2.31\n"
    "slurmstepd: error: *** STEP 41.0 ON node0 CANCELLED AT 2026-03-01T10:00:09 ***\n"
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    "srun: error: node1: tasks 4-7: Killed\n"
    "srun: error: node0: tasks 0-3: Killed\n"
)


def test_a_task_that_is_killed_before_its_step_is_cancelled_is_why(rules: RuleSet) -> None:
    found = diagnose_text(KILLED_FIRST, rules)
    assert found.candidates[0].id == "process-crashed"
    assert [(one.rank, one.host) for one in found.candidates[0].culprits] == [(5, "node1")]


def test_tasks_that_are_killed_behind_the_cancelling_of_their_step_are_not(rules: RuleSet) -> None:
    found = diagnose_text(CANCELLED_FIRST, rules)
    assert found.candidates[0].id == "job-preempted"


def test_a_launcher_of_torch_under_slurm_is_one_task_a_host_and_no_rank(rules: RuleSet) -> None:
    elastic = "W0301 10:00:05.000000 91 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 107 closing signal SIGTERM\n"
    found = diagnose_text(elastic + KILLED_FIRST, rules)
    assert all(one.rank is None for one in found.candidates[0].culprits)
