"""The nodes of a job as Slurm tells them, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nccl_triage.errors import UsageError
from nccl_triage.hosts.slurm import slurm_job


@pytest.mark.parametrize(
    ("asked", "told", "said"),
    [
        ("7", "7|7_[0-1]|PENDING|{user}|", "Slurm job 7 does not run: it is PENDING"),
        ("7", "9|7_1|RUNNING|{user}|gn01\n8|7_0|RUNNING|{user}|gn01", "Slurm job 7 is an array of which 2 tasks run"),
        ("7_1", "9|7_1|RUNNING|{user}|gn01", "--jobid=9"),
        ("7", "7|7+0|RUNNING|{user}|gn01\n8|7+1|RUNNING|{user}|gn02", "--jobid=7 --het-group=0"),
        ("7", "7|7|RUNNING|4294967290|gn01", "Slurm job 7 belongs to 4294967290"),
        ("7", "", "Slurm does not know job 7"),
        ("7;reboot", "", "expected a job, a task of an array or a step"),
        ("--users=x", "", "expected a job, a task of an array or a step"),
    ],
)
def test_what_squeue_prints_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, told: str, said: str
) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ncat <<'E'\n{told.format(user=os.geteuid())}\nE\n", "utf-8")
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$3"\n', "utf-8")
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/other.conf")
    if not said.startswith("--jobid"):
        with pytest.raises(UsageError, match=said):
            slurm_job(asked)
        return
    command = " ".join(slurm_job(asked).places[0].command)
    assert said in command
    assert "-u SLURM_JOB_ID" in command and "-u SLURM_CONF" not in command
