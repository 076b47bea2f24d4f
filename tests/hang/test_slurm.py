"""A real Slurm of two nodes: the ranks of jobs, steps, arrays and components are found, and each other job is refused by name."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from nccl_triage import diagnose
from tests.hang import namespaces
from tests.hang.hanging import TRAIN, wait_for
from tests.hang.namespaces import Host, nothing_left

pytestmark = [
    pytest.mark.xdist_group("hang-slurm"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]
NODES = ("gn01", "gn02")
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scontrol", "scancel")
CONFIGURATION = """ClusterName=hang
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
MessageTimeout=4
KillWait=1
MpiDefault=none
NodeName=gn01 NodeHostname=gn01 NodeAddr=127.0.0.1 Port={ports[1]} CPUs=32
NodeName=gn02 NodeHostname=gn02 NodeAddr=127.0.0.1 Port={ports[2]} CPUs=32
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
#: A rank without torch, which says that it is there.
RANK = """
import os, sys, time
open("there.%s.%s" % (sys.argv[1], os.environ["SLURM_PROCID"]), "w").close()
time.sleep(600)
"""


class Site:
    """The cluster: what it says and how jobs get into it."""

    def __init__(self, folder: Path, environment: Mapping[str, str], hosts: list[Host]) -> None:
        self.folder, self.environment, self.hosts = folder, dict(environment), hosts
        # As programs do that ask Slurm: none of these processes has had a RANK from the start.
        asks = 'import os\nos.environ["RANK"] = os.environ["SLURM_PROCID"]\n'
        (folder / "train.py").write_text(asks + TRAIN, "utf-8")
        (folder / "rank.py").write_text(RANK, "utf-8")

    def told(self, *words: str) -> str:
        """Return what a command of Slurm prints."""
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch script; returns the number of the job."""
        path = self.folder / f"script.{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n", "utf-8")
        output = f"--output={self.folder}/batch-%j.log"
        return self.told("sbatch", "--parsable", output, *options, str(path)).strip()

    def hang(self, *more: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run ``nccl-triage hang``."""
        return subprocess.run(
            [sys.executable, "-m", "nccl_triage", "hang", *more], cwd=folder, env={**self.environment, **variables},
            capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def there(self, *names: str) -> None:
        """Wait until ranks are where they hang."""
        wait_for(lambda: all((self.folder / name).exists() for name in names), ", ".join(names))

    def steps(self) -> list[str]:
        """Return the steps that run."""
        return sorted(self.told("squeue", "--noheader", "--steps", "--format=%i").split())


def _free_ports(number: int) -> list[int]:
    with_ports = [socket.socket() for _ in range(number)]
    for free in with_ports:
        free.bind(("127.0.0.1", 0))
    ports = [int(free.getsockname()[1]) for free in with_ports]
    for free in with_ports:
        free.close()
    return ports


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    found = {name: shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin") for name in PROGRAMS}
    absent = [name for name, path in found.items() if path is None]
    why = f"{', '.join(absent)} is not installed" if absent else namespaces.missing()
    if why:
        pytest.skip(why)
    # Other users come here, too: not below a folder that is private to this one.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, ports=_free_ports(3)))
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o600)
    environment = namespaces.environment(SLURM_CONF=str(folder / "slurm.conf"))
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    munge = [
        f"--{name}={folder}/{path}"
        for name, path in (
            ("key-file", "key"),
            ("socket", "munge.socket"),
            ("pid-file", "munge.pid"),
            ("log-file", "munge.log"),
            ("seed-file", "munge.seed"),
        )
    ]
    daemons: list[subprocess.Popen[bytes]] = []
    hosts: list[Host] = []
    try:
        for words in ([str(found["munged"]), "--foreground", "--force", *munge], [str(found["slurmctld"]), "-D", "-c"]):
            with (folder / "daemons.log").open("ab") as log:
                daemons.append(
                    subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                )
            if not daemons[1:]:
                wait_for((folder / "munge.socket").exists, "munged serves", 20)
        for name in NODES:
            hosts.append(Host(name, [str(found["slurmd"]), "-D", "-N", name], environment, folder / f"{name}.log"))
        made = Site(folder, environment, hosts)
        wait_for(lambda: _idle(made), "both nodes are idle", 30)
        yield made
    finally:
        for host in hosts:
            host.close()
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _idle(site: Site) -> bool:
    done = subprocess.run(
        ["sinfo", "--noheader", "--format=%T %D"], env=site.environment, capture_output=True, text=True, check=False
    )
    return done.stdout.split() == ["idle", "2"]


@pytest.fixture(scope="module")
def job(site: Site) -> str:
    """A job whose four ranks hang for the fault of rank 1; a monitor of its batch script, and a shell of a user, are no ranks."""
    step = "srun --overlap --ntasks=4 --distribution=cyclic --kill-on-bad-exit=0 --output=train-%t.log"
    port = _free_ports(1)[0]
    variables = f"export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT={port} GLOO_SOCKET_IFNAME=lo"
    program = f"{sys.executable} train.py"
    number = site.submit(
        f"cd {site.folder}\n{variables}\n{sys.executable} -c 'import time; time.sleep(600)' &\n{step} {program}",
        "--nodes=2",
        "--ntasks-per-node=3",
    )
    site.there(*(f"ready.{rank}" for rank in range(4)))
    return number


def test_the_rank_that_is_elsewhere_is_named_by_its_node(site: Site, job: str, tmp_path: Path) -> None:
    # As in the shell of another allocation, whose variables srun would take for options.
    allocation = {
        "SLURM_JOB_ID": "1",
        "SLURM_NTASKS": "7",
        "SLURM_NNODES": "5",
        "SLURM_MEM_PER_CPU": "9",
        "SQUEUE_FORMAT": "%u",
    }
    steps = site.steps()
    with nothing_left(site.hosts):
        result = site.hang("--slurm", job, "--wait", "0.3", "--out", "evidence", folder=tmp_path, **allocation)
    assert result.returncode == 0, result.stderr
    assert "Rank 1 on gn02 is in export_report (" in result.stdout
    assert "did not answer" not in result.stderr and "no process" not in result.stderr
    made = json.loads((tmp_path / "evidence/hang.json").read_text("utf-8"))
    assert made["job"] == f"Slurm job {job}.0"
    assert {host["host"]: [one["rank"] for one in host["ranks"]] for host in made["hosts"]} == {
        "gn01": [0, 2],
        "gn02": [1, 3],
    }
    assert [(site.folder / f"signals.{rank}").read_bytes() for rank in range(4)] == [b""] * 4
    assert site.steps() == steps
    shutil.copytree(tmp_path / "evidence", tmp_path / "elsewhere")
    again = diagnose(tmp_path / "elsewhere").to_dict()["diagnoses"][0]
    assert again["cause"] == "rank-divergence"
    assert [(one["rank"], one["host"]) for one in again["culprits"]] == [(1, "gn02")]


def test_an_interruption_leaves_no_step(site: Site, job: str, tmp_path: Path) -> None:
    steps = site.steps()
    words = [sys.executable, "-m", "nccl_triage", "hang", "--slurm", job, "--wait", "60", "--out", "out"]
    with nothing_left(site.hosts):
        process = subprocess.Popen(
            words, cwd=tmp_path, env=site.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for(
                lambda: (
                    any("/fd/" in line for host in site.hosts for line in host.processes().values())
                    and (tmp_path / "out").exists()
                ),
                "it takes",
                60,
            )
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=30)[0]
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert list(tmp_path.iterdir()) == []
    wait_for(lambda: site.steps() == steps, "the steps have ended", 20)


def test_a_step_is_chosen_by_its_number(site: Site, job: str, tmp_path: Path) -> None:
    for words, problem in (
        ((f"{job}.77",), f"error: no rank was found on the nodes of Slurm job {job}.77"),
        ((job, "--python", "/nowhere/python"), "gn01: slurmstepd-gn01: error: execve(): /nowhere/python: No such file or directory"),
        ((job, "--pid", "1"), "error: --pid and --slurm cannot be combined"),
    ):  # fmt: skip
        result = site.hang("--slurm", *words, "--wait", "0", folder=tmp_path)
        assert result.returncode == 2
        assert problem in result.stderr
    assert list(tmp_path.iterdir()) == []
    batch = site.hang("--slurm", f"{job}.batch", "--wait", "0", "--out", "out", folder=tmp_path)
    assert batch.returncode == 0, batch.stderr
    assert json.loads((tmp_path / "out/hang.json").read_text("utf-8"))["missing_ranks"] == []


def test_what_a_node_has_lost_and_a_node_that_does_not_answer(site: Site, job: str, tmp_path: Path) -> None:
    """Last of the job's tests: it kills ranks."""
    [lost] = [pid for pid in site.hosts[1].processes() if _rank(pid) == "3"]
    os.kill(lost, signal.SIGKILL)
    os.kill(site.hosts[0].daemon, signal.SIGSTOP)
    try:
        start = time.monotonic()
        result = site.hang("--slurm", job, "--wait", "0", "--out", "out", folder=tmp_path)
        assert time.monotonic() - start < 60
    finally:
        os.kill(site.hosts[0].daemon, signal.SIGCONT)
    assert result.returncode == 0, result.stderr
    assert "gn01 did not answer: srun: error: " in result.stderr
    assert "rank 3 has no process on gn02 any more" in result.stderr
    assert "rank 0,2 has no process on any host that answered" in result.stderr


def _rank(pid: int) -> str | None:
    told = Path(f"/proc/{pid}/environ").read_text().split("\0")
    given = dict(entry.partition("=")[::2] for entry in told)
    return given.get("SLURM_PROCID") if "SLURM_STEP_ID" in given else None


def test_tasks_of_an_array_are_jobs_of_their_own(site: Site, tmp_path: Path) -> None:
    script = f"cd {site.folder}\nsrun {sys.executable} rank.py array$SLURM_ARRAY_TASK_ID"
    number = site.submit(script, "--nodes=1", "--ntasks=2", "--array=3-4")
    site.there(*(f"there.array{task}.{rank}" for task in (3, 4) for rank in (0, 1)))
    all_of_them = site.hang("--slurm", number, folder=tmp_path)
    assert all_of_them.returncode == 2
    assert f"error: Slurm job {number} is an array of which 2 tasks run\ncause: {number}_" in all_of_them.stderr
    assert re.search(rf"try: choose one: --slurm {number}_[34]\n", all_of_them.stderr)
    for task in (3, 4):
        one = site.hang("--slurm", f"{number}_{task}", "--wait", "0", "--out", str(task), folder=tmp_path)
        assert one.returncode == 0, one.stderr
        ranks = json.loads((tmp_path / f"{task}/hang.json").read_text("utf-8"))["hosts"][0]["ranks"]
        assert [(one["rank"], f"array{task}" in one["command"]) for one in ranks] == [(0, True), (1, True)]
    site.told("scancel", number)


def test_components_are_one_job(site: Site, tmp_path: Path) -> None:
    script = f"#SBATCH --nodes=1 --ntasks=2 -w gn01\n#SBATCH hetjob\n#SBATCH --nodes=1 --ntasks=1 -w gn02\ncd {site.folder}\nsrun --het-group=0,1 {sys.executable} rank.py het"
    number = site.submit(script)
    site.there(*(f"there.het.{rank}" for rank in range(3)))
    second = site.told("squeue", "--noheader", f"--jobs={number}+1", "--format=%A").split()[-1]
    for written in (number, f"{number}+1", second):
        result = site.hang("--slurm", written, "--wait", "0", "--out", written, folder=tmp_path)
        assert result.returncode == 0, result.stderr
        made = json.loads((tmp_path / written / "hang.json").read_text("utf-8"))
        assert {host["host"]: [one["rank"] for one in host["ranks"]] for host in made["hosts"]} == {
            "gn01": [0, 1],
            "gn02": [2],
        }
    site.told("scancel", number)


def test_two_steps_at_once_are_asked_for_by_name(site: Site, tmp_path: Path) -> None:
    script = (
        f"cd {site.folder}\nfor name in one two; do srun --exact --ntasks=1 {sys.executable} rank.py $name & done\nwait"
    )
    number = site.submit(script, "--nodes=1", "--ntasks=2")
    site.there("there.one.0", "there.two.0")
    both = site.hang("--slurm", number, folder=tmp_path)
    assert both.returncode == 2
    assert f"2 jobs were found\ncause: Slurm job {number}.0: pid " in both.stderr
    assert "try: choose a step, as in --slurm 4711.0" in both.stderr
    one = site.hang("--slurm", f"{number}.1", "--wait", "0", "--out", "out", folder=tmp_path)
    assert one.returncode == 0, one.stderr
    assert json.loads((tmp_path / "out/hang.json").read_text("utf-8"))["job"] == f"Slurm job {number}.1"
    site.told("scancel", number)


@pytest.fixture
def never(site: Site) -> Iterator[str]:
    """A job of somebody else, which runs."""
    nobody = pwd.getpwnam("nobody")
    words = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    number = site.told(*words, "sbatch", "--parsable", "--chdir=/", "--output=/dev/null", "--wrap=sleep 600").strip()
    wait_for(lambda: _state(site, number) == "RUNNING", "the job runs", 30)
    yield number
    site.told("scancel", number)


def _state(site: Site, number: str) -> str:
    return site.told("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T").strip()


def test_jobs_that_cannot_be_looked_at_are_refused_in_one_sentence(site: Site, never: str, tmp_path: Path) -> None:
    ended = site.submit("exit 0")
    waiting = site.submit("exit 0", "--begin=now+1hour")
    wait_for(lambda: _state(site, ended) == "COMPLETED", "the job has ended", 30)
    for written, error in (
        (never, f"Slurm job {never} belongs to nobody\n"),
        (ended, f"Slurm job {ended} does not run: it is COMPLETED\n"),
        (waiting, f"Slurm job {waiting} does not run: it is PENDING\n"),
        ("99999999", "Slurm does not know job 99999999\n"),
        (f"{ended}_5", f"Slurm does not know job {ended}_5\n"),
        ("--help", "--slurm --help: expected a job, a task of an array or a step\n"),
    ):
        result = site.hang(f"--slurm={written}", folder=tmp_path)
        assert result.returncode == 2
        assert result.stderr.startswith(f"error: {error}"), result.stderr
        assert "try: " in result.stderr
    site.told("scancel", waiting)
    assert list(tmp_path.iterdir()) == []
