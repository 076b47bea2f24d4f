"""Steps of one Slurm job in one log: one after the other they are runs, side by side they are not."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

INIT = "gpu07:{pid}:{pid} [0] NCCL INFO Bootstrap : Using eth0:10.1.0.7<0>\n"
OOM = "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
EXITED = "srun: error: gpu07: task {rank}: Exited with exit code 1\n"
ENDED = "srun: Terminating StepId=4711.{step}\nslurmstepd: error: *** STEP 4711.{step} ON gpu07 CANCELLED AT 2026-01-0{day}T10:00:00 ***\n"  # fmt: skip
PORT = "[rank1]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"  # fmt: skip


def step(number: int, failure: str, begin: str = "") -> str:
    """What a step leaves in the log: it comes up, fails, and Slurm ends it."""
    return begin + failure + EXITED.format(rank=1) + ENDED.format(step=number, day=number + 1)


@pytest.mark.parametrize("begin", [INIT.format(pid=501), ""])
def test_the_last_step_decides(begin: str, rules: RuleSet) -> None:
    text = step(0, OOM.format(rank=1), INIT.format(pid=501)) + step(1, PORT, begin)
    found = diagnose_text(text, rules)
    assert (found.cause, len(found.case.story.runs)) == ("port-in-use", 2)
    assert found.case.story.runs[1].events[0].line == 6


def test_steps_side_by_side_are_one_run(rules: RuleSet) -> None:
    # The workers' step fails, then Slurm ends the step of the head.
    text = INIT.format(pid=501) + OOM.format(rank=1) + EXITED.format(rank=1)
    text += ENDED.format(step=1, day=1) + "step 5/9 loss 2.1\n" + EXITED.format(rank=0) + ENDED.format(step=0, day=1)
    found = diagnose_text(text, rules)
    assert (found.cause, len(found.case.story.runs)) == ("gpu-out-of-memory", 1)


def test_interleaved_steps_are_one_run(rules: RuleSet) -> None:
    lines = [
        "srun: Terminating StepId=4711.0\n",
        "srun: Terminating StepId=4711.1\n",
        "srun: Force Terminated StepId=4711.0\n",
        "srun: Force Terminated StepId=4711.1\n",
    ]
    text = OOM.format(rank=1) + INIT.format(pid=501).join(lines)
    assert len(diagnose_text(text, rules).case.story.runs) == 1


def test_the_batch_script_is_no_step_of_its_own(rules: RuleSet) -> None:
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.{}. Some of the step tasks have been OOM Killed.\n"  # fmt: skip
    text = EXITED.format(rank=1) + killed.format(0) + INIT.format(pid=501) + EXITED.format(rank=1)
    assert len(diagnose_text(text + killed.format("batch"), rules).case.story.runs) == 1


def test_tasks_that_are_listed_lie_on_the_host_of_the_line(rules: RuleSet) -> None:
    text = "srun: error: gpu07: tasks 1-3: Segmentation fault (core dumped)\n" + ENDED.format(step=0, day=1)
    found = diagnose_text(text, rules)
    assert found.cause == "process-crashed"
    assert {(culprit.rank, culprit.host) for culprit in found.candidates[0].culprits} == {
        (n, "gpu07") for n in (1, 2, 3)
    }
