"""Several runs and job steps in one input: which of them the verdict is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.api import diagnose
from nccl_triage.document.diagnosis import Diagnosis, diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.scan.scanner import Scanner
from tests.scan_helpers import diagnose_text, lines

GOOD = "".join(f"step {n}/5 loss 2.{n}\n" for n in range(1, 6)) + "Training completed.\n"
OOM = "step 1/5 loss 2.1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
PORT = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"  # fmt: skip
BOUNDARIES = [
    "nohup: ignoring input\n",
    "+ torchrun --nproc_per_node=2 train.py\n",
    "+ srun --ntasks=8 python train.py\n",
    "user@gpu-17:~/exp$ CUDA_VISIBLE_DEVICES=0 python3 train.py\n",
    "Sender: LSF System <lsfadmin@node12>\nSuccessfully completed.\nThe output (if any) follows:\n",
    "STARTING TIMING RUN AT 2025-09-29 03:10:42 PM\n",
]


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_the_last_run_decides(boundary: str, rules: RuleSet) -> None:
    healthy = diagnose_text(OOM + boundary + GOOD, rules)
    assert (healthy.verdict, len(healthy.case.story.runs)) == ("healthy", 2)
    failed = diagnose_text(GOOD + boundary + OOM, rules)
    line = 8 + boundary.count("\n")
    assert (failed.cause, failed.candidates[0].weighed.for_items[0].events[0].line) == ("gpu-out-of-memory", line)
    later = diagnose_text(OOM + boundary + PORT, rules)
    assert later.cause == "port-in-use"


def test_a_report_of_lsf_belongs_to_the_output_below_or_above_it(rules: RuleSet) -> None:
    report = "Sender: LSF System <lsfadmin@node12>\nSubject: Job 7: <train> Exited\n\nExited with exit code 1.\n\n"
    above = diagnose_text(GOOD + report + "The output (if any) follows:\n\n" + OOM, rules)
    assert (above.cause, len(above.case.story.runs)) == ("gpu-out-of-memory", 2)
    alone = diagnose_text(report + "The output (if any) follows:\n\n" + GOOD, rules)
    assert (alone.verdict, alone.case.story.outcome.state) == ("unknown", "failed")
    below = diagnose_text(OOM + report + "The output (if any) is above this job summary.\n", rules)
    assert (below.cause, len(below.case.story.runs)) == ("gpu-out-of-memory", 1)


def test_a_run_that_only_began_leaves_the_verdict_to_the_one_before(rules: RuleSet) -> None:
    assert diagnose_text(OOM + "nohup: ignoring input\n", rules).cause == "gpu-out-of-memory"


def test_twelve_runs_in_one_file(rules: RuleSet) -> None:
    text = "".join("nohup: ignoring input\n" + OOM for _ in range(11)) + "nohup: ignoring input\n" + GOOD
    assert diagnose_text(text, rules).verdict == "healthy"


@pytest.mark.parametrize(
    "line",
    [
        "+ nvidia-smi\n",
        "user@gpu-17:~/exp$ dmesg | tail\n",
        "Error: failed to run torchrun --nproc_per_node=4 --nnodes=1 --node_rank=0 train.py on 127.0.0.1, is localhost: True, exception: Encountered a bad command exit code!\n",
    ],
)
def test_what_starts_no_job_joins(line: str, rules: RuleSet) -> None:
    found = diagnose_text(OOM + line, rules)
    assert (found.cause, len(found.case.story.runs)) == ("gpu-out-of-memory", 1)


def test_launchers_of_several_hosts_start_one_run(rules: RuleSet) -> None:
    launch = "n{n}: [2025-06-03 14:00:01,000] [INFO] [launch.py:146:main] WORLD INFO DICT: {{'n1': [0], 'n2': [0]}}\n"
    step = "n1: step 1/5 loss 2.1\n"
    found = diagnose_text(launch.format(n=1) * 2 + step + launch.format(n=2) * 2 + step, rules)
    assert len(found.case.story.runs) == 1


INIT = "gpu07:{pid}:{pid} [0] NCCL INFO Bootstrap : Using eth0:10.1.0.7<0>\n"
OOM_OF_RANK = "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
EXITED = "srun: error: gpu07: task {rank}: Exited with exit code 1\n"
ENDED = "srun: Terminating StepId=4711.{step}\nslurmstepd: error: *** STEP 4711.{step} ON gpu07 CANCELLED AT 2026-01-0{day}T10:00:00 ***\n"  # fmt: skip
PORT_OF_RANK = "[rank1]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"  # fmt: skip


def step(number: int, failure: str, begin: str = "") -> str:
    """What a step leaves in the log: it comes up, fails, and Slurm ends it."""
    return begin + failure + EXITED.format(rank=1) + ENDED.format(step=number, day=number + 1)


@pytest.mark.parametrize("begin", [INIT.format(pid=501), ""])
def test_the_last_step_decides(begin: str, rules: RuleSet) -> None:
    text = step(0, OOM_OF_RANK.format(rank=1), INIT.format(pid=501)) + step(1, PORT_OF_RANK, begin)
    found = diagnose_text(text, rules)
    assert (found.cause, len(found.case.story.runs)) == ("port-in-use", 2)
    assert found.case.story.runs[1].events[0].line == 6


def test_steps_side_by_side_are_one_run(rules: RuleSet) -> None:
    # The workers' step fails, then Slurm ends the step of the head.
    text = INIT.format(pid=501) + OOM_OF_RANK.format(rank=1) + EXITED.format(rank=1)
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
    text = OOM_OF_RANK.format(rank=1) + INIT.format(pid=501).join(lines)
    assert len(diagnose_text(text, rules).case.story.runs) == 1


def test_the_batch_script_is_no_step_of_its_own(rules: RuleSet) -> None:
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.{}. Some of the step tasks have been OOM_OF_RANK Killed.\n"  # fmt: skip
    text = EXITED.format(rank=1) + killed.format(0) + INIT.format(pid=501) + EXITED.format(rank=1)
    assert len(diagnose_text(text + killed.format("batch"), rules).case.story.runs) == 1


def test_tasks_that_are_listed_lie_on_the_host_of_the_line(rules: RuleSet) -> None:
    text = "srun: error: gpu07: tasks 1-3: Segmentation fault (core dumped)\n" + ENDED.format(step=0, day=1)
    found = diagnose_text(text, rules)
    assert found.cause == "process-crashed"
    assert {(culprit.rank, culprit.host) for culprit in found.candidates[0].culprits} == {
        (n, "gpu07") for n in (1, 2, 3)
    }


RAISED = "[rank{r}]: Traceback (most recent call last):\n[rank{r}]:   File \"/app/train.py\", line 90, in <module>\n[rank{r}]:     main()\n[rank{r}]: {what}\n"  # fmt: skip
AGENT = "E1123 10:22:31.418000 40112 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: {pid}) of binary: /opt/venv/bin/python3\n"
GAVE_UP = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
FIRST = "step 10 loss 2.0\nstep 20 loss 1.9\n" + RAISED.format(r=1, what="KeyError: 'fr'") + AGENT.format(pid=402)


def test_an_agent_that_does_not_give_up_has_started_others(rules: RuleSet) -> None:
    """It starts its workers again without a word, and they may go on from any step."""
    for later in ("step 20 loss 1.9\nstep 30 loss 1.8\n", "step 25 loss 1.9\n"):
        found = diagnose_text(FIRST + later, rules)
        assert (found.verdict, found.case.story.outcome.state, len(found.case.story.runs)) == ("healthy", "running", 2)


def test_what_ends_the_last_attempt_decides(rules: RuleSet) -> None:
    again = (
        "step 30 loss 1.8\n" + RAISED.format(r=0, what="ZeroDivisionError: division by zero") + AGENT.format(pid=409)
    )
    found = diagnose_text(FIRST + again + GAVE_UP, rules)
    assert (found.cause, [c.rank for c in found.candidates[0].culprits]) == ("application-exception", [0])
    never = diagnose_text(
        FIRST + RAISED.format(r=0, what="OSError: [Errno 98] Address already in use") + GAVE_UP, rules
    )
    assert len(never.case.story.runs) == 1, "an attempt without a step decides nothing"


def test_an_agent_that_gave_up_has_started_nobody(rules: RuleSet) -> None:
    """What other hosts print later is the end of the same run."""
    found = diagnose_text(FIRST + GAVE_UP + "step 21 loss 1.9\n", rules)
    assert (found.cause, len(found.case.story.runs)) == ("application-exception", 1)
    hosts = "".join(
        f"host-{h}: {line}\n" for h, text in ((1, FIRST), (2, "step 21 loss 1.9")) for line in text.splitlines()
    )
    other = diagnose_text(hosts, rules)
    assert (other.cause, len(other.case.story.runs)) == ("application-exception", 1), (
        "another host has an agent of its own"
    )


def attempts(rules: RuleSet, *texts: str, layout: str = "torchrun") -> Diagnosis:
    """Return the diagnosis of attempts whose ranks have a file each."""
    found = Observations()
    for number, text in enumerate(texts):
        for rank in range(2):
            path = f"run/attempt_{number}/{rank}/stderr.log"
            info = SourceInfo(path, layout=layout, attempt=number, local_rank=rank)
            found.absorb(Scanner(rules).scan(lines(text, info), info))
    return diagnose_observations(found, rules)


def test_the_last_attempt_decides_though_no_line_has_a_time(rules: RuleSet) -> None:
    found = attempts(rules, OOM, GOOD)
    assert (found.verdict, len(found.case.story.runs)) == ("healthy", 2)
    assert attempts(rules, GOOD, OOM).cause == "gpu-out-of-memory"
    assert attempts(rules, OOM, PORT).cause == "port-in-use"


def test_containers_that_start_again_one_by_one_are_one_run(rules: RuleSet) -> None:
    found = attempts(rules, OOM, GOOD, layout="kubernetes")
    assert (found.cause, len(found.case.story.runs)) == ("gpu-out-of-memory", 1)


SET_UP = "trainer-{0}  | [rank{0}]: process group ready, world size 2\n"
RAISES = (
    "trainer-{0}  | [rank{0}]: Traceback (most recent call last):\n"
    'trainer-{0}  | [rank{0}]:   File "/app/train.py", line 9, in <module>\n'
    "trainer-{0}  | [rank{0}]:     x = y[k]\n"
    "trainer-{0}  | [rank{0}]: KeyError: 'label'\n"
)
WORKED = "trainer-{0}  | [rank{0}]: step 1/9 loss 2.1\n"


def test_ranks_that_start_again_after_all_raised_begin_a_run(rules: RuleSet) -> None:
    ends = "".join(part.format(rank) for part in (SET_UP, RAISES) for rank in range(2))
    works = "".join(part.format(rank) for part in (SET_UP, WORKED) for rank in range(2))
    found = diagnose_text(ends + works, rules)
    assert (found.verdict, len(found.case.story.runs)) == ("healthy", 2)


def test_logs_of_ranks_one_below_the_other_are_one_run(rules: RuleSet) -> None:
    """Another rank that starts after the exception of one is not that one again."""
    log = "".join(part.format(0) for part in (SET_UP, WORKED, RAISES)) + "".join(
        part.format(1) for part in (SET_UP, WORKED)
    )
    found = diagnose_text(log, rules)
    assert (found.cause, len(found.case.story.runs)) == ("application-exception", 1)


def test_output_that_was_held_back_begins_no_run(rules: RuleSet) -> None:
    """Python writes standard output at its end where it is no terminal: below the traceback."""
    lost = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:6471"
    errors = RAISED.format(r=0, what="KeyError: 'fr'") + RAISED.format(r=1, what=lost)
    printed = "".join(
        f"[rank{r}]: 2026-11-21 21:46:5{r},417 - INFO - train - [rank {r}/2] torch 2.13.0+cpu, pid 2315{r}, host gpu-node-01\n"
        f"[rank{r}]: 2026-11-21 21:46:5{r},617 - INFO - train - [rank {r}/2] process group ready, world size 2\n"
        f"[rank{r}]: 2026-11-21 21:46:5{r},817 - INFO - train - step 10 loss 2.0\n"
        for r in (0, 1)
    )
    for log in (errors + printed, errors + AGENT.format(pid=402) + printed):
        found = diagnose_text(log, rules)
        assert (found.verdict, len(found.case.story.runs)) != ("healthy", 2), log
        assert [culprit.rank for culprit in found.candidates[0].culprits] == [0]


def test_a_process_that_prints_its_beginning_again_is_another(rules: RuleSet) -> None:
    ready = "[rank0]: 2026-11-21 21:46:51,617 - INFO - train - [rank 0/1] process group ready, world size 1\n"
    died = ready + "[rank0]: step 10 loss 2.0\n" + RAISED.format(r=0, what="KeyError: 'fr'")
    again = diagnose_text(died + ready + "[rank0]: step 10 loss 2.0\n[rank0]: step 20 loss 1.9\n", rules)
    assert (again.verdict, len(again.case.story.runs)) == ("healthy", 2)


def _attempt(hour: int, *lines: str) -> str:
    opening = ["the sampler of tides", "reading the stations", f"stations: {hour}", "the grid is ready", "seed is 17"]
    return "".join(f"[2026-03-01 {hour:02}:10:{n:02},000] {line}\n" for n, line in enumerate([*opening, *lines]))


def test_files_of_ranks_that_are_written_on_hold_an_attempt_below_the_other(tmp_path: Path) -> None:
    failed = ["step 1/5 loss 2.1", "RuntimeError: the tide table has no row 7"]
    steps = [f"step {n}/5 loss 2.{n}" for n in range(1, 6)]
    (tmp_path / "workerlog.0").write_text(_attempt(8, *failed) + _attempt(9, *failed) + _attempt(10, *steps))
    (tmp_path / "workerlog.1").write_text(_attempt(8, *failed) + _attempt(10, *steps))
    found = diagnose(tmp_path)
    runs_ = found.case.story.runs
    assert (found.verdict, len(runs_)) == ("healthy", 3)
    # The second file has no attempt of 9 o'clock; its times tell to which runs its own belong.
    assert [sum(event.source.endswith("workerlog.1") for event in run.printed) > 0 for run in runs_] == [
        True,
        False,
        True,
    ]


def test_a_file_of_an_earlier_attempt_alone_says_nothing_of_the_last(tmp_path: Path) -> None:
    steps = [f"step {n}/5 loss 2.{n}" for n in range(1, 6)]
    (tmp_path / "workerlog.0").write_text(_attempt(8, "step 1/5 loss 2.1") + _attempt(10, *steps))
    (tmp_path / "workerlog.1").write_text(_attempt(8, "RuntimeError: the tide table has no row 7"))
    assert diagnose(tmp_path).verdict == "healthy"
