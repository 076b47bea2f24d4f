"""Every command that a plan prints is executed as it is printed, and does what the plan says."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from corpus.scenarios import network
from tests.raylets import MARKS, _raylets, cluster  # noqa: F401

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
#: A job of Gloo, whose log does not say where it ran.
LOG = (
    "[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
    "[10.0.0.2]:4021\n"
    "[rank1]: RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:446] "
    "op.preamble.length <= op.nbytes. 8388608 vs 4194304\n"
)
SECONDS = 120.0


def shell(folder: Path, line: str, *before: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Execute a line as a person would who has pasted it, in a shell whose nccl-triage is this one."""
    own = folder / "bin" / "nccl-triage"
    if not own.exists():
        own.parent.mkdir()
        own.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m nccl_triage "$@"\n')
        own.chmod(0o700)
    # The folder may be of pytest, the package is where it is.
    path = {"PATH": f"{own.parent}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [*before, "bash", "-c", line],
        cwd=folder,
        env={**os.environ, **path, "NCCL_TRIAGE_LANG": "en", **env},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def planned(folder: Path, *options: str) -> dict[str, Any]:
    """Return what ``--dry-run`` says of the job's log, with commands by their launcher."""
    (folder / "job.log").write_text(LOG)
    asked = shell(folder, shlex.join(["nccl-triage", "verify", "job.log", "--dry-run", "--format", "json", *options]))
    assert asked.returncode == 0, asked.stderr
    found: dict[str, Any] = json.loads(asked.stdout)
    (entry,) = (one for one in found["experiments"] if one["cause"] == "collective-mismatch")
    assert entry["control"]["backend"] == "gloo", "a job of Gloo is tested with Gloo"
    return {"control": entry["control"], **{one["launcher"]: one["commands"] for one in found["commands"]}}


#: What is at hand here: two ranks, on hosts that are the job's, for which little patience is enough.
OPTIONS = ("--world", "2", "--job-hosts", "--suspects", "1", "--patience", "0.5")


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, Any]:
    return planned(tmp_path, *OPTIONS)


def test_every_command_repeats_what_shapes_the_plan(plan: dict[str, Any]) -> None:
    for name in ("local", "ray", "slurm", "torchrun"):
        words = shlex.split(plan[name][0].partition(" && ")[0])
        given = " ".join(words)
        for option in ("--world 2", "--job-hosts", "--suspects 1", "--patience 0.5"):
            assert given.count(option) == 1, (name, option)


def ran(folder: Path, lines: list[str], **env: str) -> str:
    """Execute the lines of a command in their order; return what the last one said."""
    for line in lines:
        done = shell(folder, line, **env)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


def passed_with_gloo(said: str, hosts: Sequence[str] = ()) -> None:
    """See that the control ran twice and passed, and that nothing of NCCL was even tried."""
    assert "not run" not in said and "NCCL" not in said, said
    assert "The same collective passes when all ranks call it correctly" in said or "The control passes" in said, said
    assert all(host in said for host in hosts), said


@needs_torch
def test_the_local_command(tmp_path: Path, plan: dict[str, Any]) -> None:
    passed_with_gloo(ran(tmp_path, plan["local"]))


@needs_torch
def test_the_lines_for_torchrun(tmp_path: Path, plan: dict[str, Any]) -> None:
    passed_with_gloo(ran(tmp_path, plan["torchrun"]))
    spec = json.loads((tmp_path / "nccl-triage-check" / "spec-run-01.json").read_text())
    assert (spec["backend"], spec["world"]) == ("gloo", plan["control"]["world_size"])


@needs_torch
@pytest.mark.skipif(shutil.which("srun") is None, reason="Slurm is not installed")
def test_the_lines_for_slurm(tmp_path: Path, plan: dict[str, Any]) -> None:
    passed_with_gloo(ran(tmp_path, plan["slurm"]))


@needs_torch
def test_what_the_lines_for_slurm_write_asks_for_no_gpu(tmp_path: Path, plan: dict[str, Any]) -> None:
    """Without Slurm the half that needs none."""
    ran(tmp_path, [plan["slurm"][0].partition(" && ")[0]])
    folder = tmp_path / "nccl-triage-check"
    assert json.loads((folder / "spec-run-01.json").read_text())["backend"] == "gloo"
    assert json.loads((folder / "plan.json").read_text())["gpus"] == 0
    assert "srun --nodes=1 --ntasks=2" in (folder / "run.sh").read_text()


@needs_torch
@pytest.mark.skipif(shutil.which("sshd") is None, reason="no sshd is installed")
def test_the_command_for_ssh(tmp_path: Path) -> None:
    here = os.uname().nodename
    if subprocess.run(["ssh", "-o", "BatchMode=yes", here, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this host does not let its user in by ssh without asking")
    command = planned(tmp_path, *OPTIONS)["ssh"][0].replace("--host HOST", f"--host {here}")
    passed_with_gloo(ran(tmp_path, [command]))


class TestRay:
    pytestmark = MARKS

    @needs_torch
    def test_the_command_for_ray(self, tmp_path: Path, plan: dict[str, Any], cluster: Any) -> None:  # noqa: F811
        passed_with_gloo(ran(tmp_path, plan["ray"], RAY_ADDRESS=cluster.address))


@needs_torch
@pytest.mark.skipif(os.geteuid() != 0, reason="not root: no network namespaces")
def test_the_lines_for_torchrun_on_two_hosts(tmp_path: Path) -> None:
    names = network.HOSTS[:2]
    plan = planned(tmp_path, *OPTIONS, "--ranks-per-host", "1", *(f"--host={name}" for name in names))
    write, *starts, judge = plan["torchrun"]
    assert len(starts) == 2
    ran(tmp_path, [write])
    with network.flat(2) as lab, ThreadPoolExecutor() as pool:
        hosts = [
            ("ip", "netns", "exec", lab.hosts[k], "unshare", "-u", "sh", "-c", _NAMED, name)
            for k, name in enumerate(names)
        ]
        # Their own names are their addresses there, and the pasted lines run at the same time.
        ends = list(
            pool.map(
                lambda one: shell(tmp_path, one[1], *one[0], GLOO_SOCKET_IFNAME="eth0"), zip(hosts, starts, strict=True)
            )
        )
    assert [end.returncode for end in ends] == [0, 0], [end.stderr for end in ends]
    passed_with_gloo(ran(tmp_path, [judge]), names)


#: Takes its own first word for the name of the host, and executes the others.
_NAMED = 'hostname "$0"; exec "$@"'
