"""The command line: which job is meant, other hosts by commands and by Slurm, and what is refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from nccl_triage.hang import collect
from nccl_triage.hang.hosts import behind_commands
from nccl_triage.hosts.links import HostPlace
from tests.hang.hanging import ROOT, WORK, hang, sleeping_ranks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
HOOK = """#!/bin/sh
echo "$0 $@" >> "{asked}"
case "$(basename "$0")" in
squeue) echo "{job}|{job}|RUNNING|{user}|gn[01-02]" ;;
scontrol) printf 'gn01\\ngn02\\n' ;;
srun)
    while [ "${{1#--}}" != "$1" ]; do last=$1; shift; done
    [ "$last" = --nodelist=gn02 ] && {{ echo "srun: error: Unable to create step" >&2; exit 1; }}
    exec "$@" ;;
esac
"""


def test_several_jobs_are_listed_and_one_is_chosen_by_a_pid(tmp_path: Path) -> None:
    # Others may run here, too: this asks for two at once.
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        sleeping_ranks(tmp_path / "a", [0, 1], MASTER_ADDR="here", MASTER_PORT="1001", WORLD_SIZE="2") as first,
        sleeping_ranks(tmp_path / "b", [0], MASTER_ADDR="here", MASTER_PORT="1002") as second,
    ):
        both = hang("--pid", str(first[0]), "--pid", str(second[0]), folder=tmp_path)
        assert both.returncode == 2
        assert "2 jobs were found" in both.stderr and f"here:1001: pid {first[0]}, {first[1]} (" in both.stderr
        assert not list(tmp_path.glob("nccl-triage-hang-*"))
        one = hang("--pid", str(first[1]), "--wait", "0", "--format", "json", folder=tmp_path)
    assert one.returncode == 0, one.stderr
    [place] = tmp_path.glob("nccl-triage-hang-*")
    assert f"diagnose again: nccl-triage {place.name}" in one.stderr
    assert json.loads(one.stdout)["outcome"]["state"] == "hung"
    made = json.loads((place / "hang.json").read_text("utf-8"))
    assert (made["job"], [rank["pid"] for rank in made["hosts"][0]["ranks"]]) == ("here:1001", first)
    told = "".join(path.read_text("utf-8") for path in place.rglob("*") if path.is_file())
    assert "wait_for_data" in told
    assert "hunter2" not in told and "hf_abcdef" not in told, "a variable, and a line of the log"


def test_what_is_refused(tmp_path: Path) -> None:
    none = hang("--pid", str(2**22 + 1), folder=tmp_path)
    assert none.returncode == 2 and "there is no process 4194305 of this user here" in none.stderr
    two_ways = hang("--host", "gn01", "--slurm", "1", folder=tmp_path)
    assert two_ways.returncode == 2 and "--host, --slurm and --ray cannot be combined" in two_ways.stderr
    (tmp_path / "there").mkdir()
    with sleeping_ranks(tmp_path, [0]) as pids:
        there = hang("--pid", str(pids[0]), "--out", "there", folder=tmp_path)
    assert there.returncode == 2 and "there already exists" in there.stderr
    assert list((tmp_path / "there").iterdir()) == []


def test_a_job_that_goes_on_meanwhile_does_not_hang(tmp_path: Path) -> None:
    with sleeping_ranks(tmp_path, [0, 1], WORK, MASTER_PORT="1005") as pids:
        result = hang("--pid", str(pids[0]), "--wait", "0.5", "--out", "out", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "the job went on between the two samples" in result.stderr
    assert result.stdout.startswith("nccl-triage: No failure: the job is still running.")


def test_a_host_behind_a_command_gets_the_program_and_sends_its_evidence(tmp_path: Path) -> None:
    with sleeping_ranks(tmp_path, [3], MASTER_ADDR="far", MASTER_PORT="1003") as [pid]:
        reach = behind_commands([HostPlace("far", ("env", "PYTHONPATH=")), HostPlace("gone", ("false",))], None)
        try:
            found = reach.ask({index: {"do": "find", "pids": [pid]} for index in (0, 1)}, collect.FIND)
            assert found[1].problem is not None and "exit code 1" in found[1].problem
            [[rank]] = found[0].found["jobs"].values()
            taken = reach.ask({0: {"do": "take", "host": "far", "ranks": [rank], "wait": 0, "signal": None}}, 60.0)
        finally:
            reach.launcher.close()
    assert taken[0].problem is None
    assert [sample["state"] for sample in taken[0].samples] == ["S", "S"]
    assert any(name.endswith("/train.log") for name in taken[0].files)


def test_every_node_of_a_slurm_job_is_asked(tmp_path: Path) -> None:
    tools, asked = tmp_path / "bin", tmp_path / "asked"
    tools.mkdir()
    job = str(900_000_000 + os.getpid())
    for name in ("squeue", "scontrol", "srun"):
        (tools / name).write_text(HOOK.format(asked=asked, job=job, user=os.geteuid()), "utf-8")
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "analyzer"), "PATH": f"{tools}:{os.environ['PATH']}"}
    with sleeping_ranks(tmp_path, [0, 1], SLURM_JOB_ID=job, MASTER_PORT="1004", WORLD_SIZE="4") as pids:
        result = hang("--slurm", job, "--wait", "0", "--out", "out", folder=tmp_path, environment=environment)
    assert result.returncode == 0, result.stderr
    assert "gn02 did not answer: srun: error: Unable to create step" in result.stderr
    made = json.loads((tmp_path / "out/hang.json").read_text("utf-8"))
    assert [[rank["pid"] for rank in host["ranks"]] for host in made["hosts"]] == [pids, []]
    assert made["missing_ranks"] == [2, 3]
    steps = [line for line in asked.read_text("utf-8").splitlines() if "/srun " in line]
    assert len(steps) == 3, "two to find the processes, and one to the node that has some"
    assert all(f"--jobid={job} --overlap --nodes=1 --ntasks=1" in line for line in steps)
