"""Lines of others: daemons, tools of scripts, and logs in which there is no job."""

from __future__ import annotations

import pytest

from nccl_triage.classifier.features import extract
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

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
    assert any(reason == "other-program" for _, reason in diagnose_text(STEPS + lines, rules).case.aside)


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
    assert extract(case, ()).names == extract(diagnose_text(job, rules).case, ()).names
    assert [reason for _, reason in case.aside] == ["tool", "tool"]


def test_a_tool_counts_where_nothing_else_tells(rules: RuleSet) -> None:
    assert diagnose_text("cp: error writing '/scratch/x': No space left on device\n", rules).cause == "storage-fault"


def test_a_long_log_without_a_job_accuses_nobody(rules: RuleSet) -> None:
    other = "".join(f"081109 203615 {n} INFO dfs.DataNode: block {n} received\n" for n in range(300))
    assert diagnose_text(other + "Received signal 15 (SIGTERM), exiting\n", rules).verdict != "diagnosed"
