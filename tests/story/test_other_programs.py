"""Lines of others: daemons, tools of scripts, and logs in which there is no job."""

from __future__ import annotations

import pytest

from nccl_triage.classifier.features import extract
from nccl_triage.diagnosis.verdict import told_lines
from nccl_triage.document.diagnosis import Diagnosis, diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations
from nccl_triage.scan.scanner import Scanner
from tests.prefix_reading import read_path
from tests.scan_helpers import diagnose_text, lines

STEPS = "".join(f"step {n}/100 loss 2.{n}\n" for n in range(1, 8))
SYSLOG = "Jun  3 09:00:0{n} node7 {program}[{pid}]: {text}\n"


def syslog(program: str, text: str) -> str:
    return "".join(SYSLOG.format(n=n, program=program, pid=1700 + n, text=text) for n in range(4))


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("sshd", "error: Bind to port 22 on 0.0.0.0 failed: Address already in use."),
        ("postgres", "FATAL: could not open file: No space left on device"),
        ("CRON", "Killed"),
    ],
)
def test_a_daemon_that_is_no_part_of_the_job_accuses_nobody(program: str, text: str, rules: RuleSet) -> None:
    lines = syslog(program, text)
    for log in (STEPS + lines, lines, lines + STEPS):
        found = diagnose_text(log, rules)
        assert found.verdict != "diagnosed"
        assert "node7" not in found.case.identity.hosts
    assert any(why.answer == "other-program" for _, why in diagnose_text(STEPS + lines, rules).case.aside)


def test_a_daemon_that_prints_the_lines_of_a_job_is_its_own(rules: RuleSet) -> None:
    log = syslog("my-wrapper", "[rank0]: step 3/9 loss 2.1")
    out_of_memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    log += SYSLOG.format(n=5, program="my-wrapper", pid=1700, text=out_of_memory)
    assert diagnose_text(log, rules).cause == "gpu-out-of-memory"


def test_daemons_that_run_jobs_count(rules: RuleSet) -> None:
    log = STEPS + syslog(
        "slurmstepd", "error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
    )
    assert diagnose_text(log, rules).cause == "host-out-of-memory"


@pytest.mark.parametrize(
    "tool",
    [
        "rm: cannot remove 'core.4711': Read-only file system",
        "cp: error writing '/scratch/x': No space left on device",
        "bash: line 14: module: command not found",
        "/usr/bin/du: cannot read directory './private': Permission denied",
    ],
)
def test_tools_of_scripts_say_nothing_where_the_job_speaks(tool: str, rules: RuleSet) -> None:
    assert diagnose_text(f"{tool}\n{STEPS}{tool}\n", rules).verdict == "healthy"


def test_the_vote_hears_no_tool_either(rules: RuleSet) -> None:
    job = f"{STEPS}[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    tools = "ls: cannot access '/old': No such file or directory\ndu: cannot read directory './private': Permission denied\n"
    case = diagnose_text(job + tools, rules).case
    assert extract(told_lines(case)).names == extract(told_lines(diagnose_text(job, rules).case)).names
    assert [why.answer for _, why in case.aside] == ["tool", "tool"]


def test_a_tool_counts_where_nothing_else_tells(rules: RuleSet) -> None:
    assert diagnose_text("cp: error writing '/scratch/x': No space left on device\n", rules).cause == "storage-fault"


def test_a_long_log_without_a_job_accuses_nobody(rules: RuleSet) -> None:
    other = "".join(f"081109 203615 {n} INFO dfs.DataNode: block {n} received\n" for n in range(300))
    assert diagnose_text(other + "Received signal 15 (SIGTERM), exiting\n", rules).verdict != "diagnosed"


WORKER = "worker-0a1b2c3d4e5f-01000000-4711"
PORT_TAKEN = "".join(
    f"2026-11-27 21:14:3{n},830\tWARNING http_server_agent.py:79 -- Failed to bind to port 52365 (attempt {n}/6). Retrying in 0.18s."
    " Error: [Errno 98] error while attempting to bind on address ('10.0.0.2', 52365): address already in use\n"
    for n in range(1, 6)
)
RAISED = (
    "Traceback (most recent call last):\n"
    '  File "/app/reward.py", line 9, in __init__\n    import flash_kernels\n'
    "ModuleNotFoundError: No module named 'flash_kernels'\n"
)
DAEMONS_STOP = {
    "raylet.out": "[2026-11-27 21:15:22,186 I 17996 17996] (raylet) main.cc:1174: received SIGTERM. Existing local drain request = None\n",
    "gcs_server.out": "[2026-11-27 21:15:22,251 I 17829 17829] (gcs_server) gcs_server_main.cc:266: GCS server received SIGTERM, shutting down...\n",
}  # fmt: skip
AGENT_FAILED = "[2026-11-27 21:14:50,100 E 310 350] (raylet) agent_manager.cc:79: The raylet exited immediately because one Ray agent failed, agent_name = dashboard_agent.\n"  # fmt: skip
OWNER_GONE = "[2026-11-27 21:15:21,100 I 17996 17996] (raylet) node_manager.cc:900: Killing leased worker because its owner died.\n"


def session(rules: RuleSet, **files: str) -> Diagnosis:
    """Return the diagnosis of the folder of a Ray session; ``_`` stands for the dot of a name."""
    found = Observations()
    for name, text in files.items():
        info = read_path(f"session_latest/logs/{name}")
        found.absorb(Scanner(rules).scan(lines(text, info), info))
    return diagnose_observations(found, rules)


def test_a_helper_of_ray_without_its_port_ended_no_job(rules: RuleSet) -> None:
    files = {"dashboard_agent.log": PORT_TAKEN, f"{WORKER}.err": RAISED}
    assert session(rules, **files).cause == "application-exception"
    assert session(rules, **{**files, f"{WORKER}.err": STEPS}).verdict != "diagnosed"
    assert session(rules, **{**files, f"{WORKER}.err": "", "raylet.out": AGENT_FAILED}).cause == "port-in-use"
    assert session(rules, **{"dashboard_agent.log": PORT_TAKEN}).cause == "port-in-use", "nothing else tells"


def test_a_ray_session_that_is_taken_down_was_not_stopped(rules: RuleSet) -> None:
    raylet = {**DAEMONS_STOP, "raylet.out": OWNER_GONE + DAEMONS_STOP["raylet.out"]}
    assert session(rules, **raylet, **{f"{WORKER}.err": RAISED}).cause == "application-exception"
    finished = session(rules, **raylet, **{f"{WORKER}.out": STEPS + "Training finished\n"})
    assert (finished.verdict, finished.case.story.outcome.state) == ("healthy", "finished")


def test_a_ray_session_that_is_over_is_not_at_work(rules: RuleSet) -> None:
    """What the driver printed is not in the folder of its session."""
    over = session(rules, **DAEMONS_STOP, **{f"{WORKER}.out": STEPS})
    assert (over.verdict, over.case.story.outcome.state) == ("unknown", "cut")


def test_a_raylet_that_is_stopped_alone_was_stopped_from_outside(rules: RuleSet) -> None:
    alone = session(rules, **{"raylet.out": DAEMONS_STOP["raylet.out"]})
    assert (alone.cause, alone.case.story.outcome.state) == ("job-preempted", "stopped")
