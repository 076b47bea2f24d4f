"""The nodes of a running Slurm job, each behind a step of its own.

squeue(1): ``%A`` is the number of each task of an array and each component of a heterogeneous job, ``%i`` the one that
people write. srun(1): ``--overlap`` since 20.11, a step in a component by ``--het-group``. With 22.05, tasks have the number
of the first component, and only the job's own user may start a step, not even root.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from dataclasses import dataclass

from nccl_triage.errors import UsageError
from nccl_triage.hosts.links import HostPlace

#: Seconds for a query of Slurm. A job, a task of an array or a component, and perhaps a step.
_SLURM = 20.0
_SLURM_JOB = re.compile(r"(\d{1,10}(?:[_+]\d{1,10})?)(?:\.(\d{1,10}|batch))?")
#: Variables that Slurm's commands take for options, but for those that say which cluster is meant and who asks.
_OPTIONS = re.compile(r"(?:SLURM|SRUN|SQUEUE|SALLOC|PMI)")
_CLUSTER = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})
_MOST_TASKS = 8


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A running job: its nodes, the numbers that its tasks may have, and the step if one was named."""

    places: tuple[HostPlace, ...]
    numbers: tuple[str, ...]
    step: str | None


@dataclass(frozen=True, slots=True)
class _SlurmRow:
    """A line of squeue."""

    number: str
    written: str
    state: str
    user: str
    nodes: str


def slurm_job(asked: str) -> SlurmJob:
    """Return the job of a number as Slurm writes it; raises UsageError where there is none to look at."""
    parts = _SLURM_JOB.fullmatch(asked.strip())
    if parts is None:
        raise UsageError(
            "--slurm {job}: expected a job, a task of an array or a step", job=asked, remedy="4711, 4711_3 or 4711.0"
        )
    written, step = parts[1], parts[2]
    rows = _slurm_rows(written)
    leader = next((row.written.partition("+")[0] for row in rows if "+" in row.written), None)
    if leader not in (None, written):
        rows = _slurm_rows(str(leader))
    running = [row for row in rows if row.state == "RUNNING"]
    if not rows:
        raise UsageError(
            "Slurm does not know job {job}",
            cause="it never existed, or ended some time ago",
            remedy="look for its number with: squeue --me; of a job that has ended, diagnose the logs",
            job=written,
        )
    if not running:
        raise UsageError(
            "Slurm job {job} does not run: it is {state}",
            remedy="look for its number with: squeue --me; of a job that has ended, diagnose the logs",
            job=written,
            state=", ".join(sorted({row.state for row in rows})),
        )
    if leader is None and len(running) > 1:
        tasks = [row.written for row in running]
        raise UsageError(
            "Slurm job {job} is an array of which {count} tasks run",
            cause="{tasks}",
            remedy="choose one: --slurm {first}",
            job=written,
            count=len(tasks),
            tasks=", ".join(tasks[:_MOST_TASKS]) + (", .." if len(tasks) > _MOST_TASKS else ""),
            first=tasks[0],
        )
    _check_user(written, running[0])
    places = [place for row in running for place in _slurm_places(row)]
    numbers = dict.fromkeys(number for row in running for number in (row.number, leader or row.number))
    return SlurmJob(tuple(places), tuple(numbers), step)


def _check_user(job: str, row: _SlurmRow) -> None:
    if row.user == str(os.geteuid()):
        return
    try:
        user = pwd.getpwuid(int(row.user)).pw_name
    except (KeyError, ValueError, OverflowError):
        user = row.user
    raise UsageError(
        "Slurm job {job} belongs to {user}",
        cause="Slurm starts steps in a job for its own user only, not for root either",
        remedy="run this as {user}",
        job=job,
        user=user,
    )


def _slurm_rows(job: str) -> list[_SlurmRow]:
    told = _slurm(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%A|%i|%T|%U|%N"])
    fields = [line.strip().split("|") for line in told.splitlines()]
    return [_SlurmRow(*part) for part in fields if len(part) == 5]


def _slurm_places(row: _SlurmRow) -> list[HostPlace]:
    """Return the nodes, each behind a step of its own: one that does not answer costs only itself."""
    own = [word for name in os.environ if _OPTIONS.match(name) and name not in _CLUSTER for word in ("-u", name)]
    leader, _, component = row.written.partition("+")
    allocation = [f"--jobid={leader}", f"--het-group={component}"] if component else [f"--jobid={row.number}"]
    step = ("env", *own, "srun", *allocation, "--overlap", "--nodes=1", "--ntasks=1", "--mpi=none", "--export=ALL")
    nodes = _slurm(["scontrol", "show", "hostnames", row.nodes]).split()
    return [HostPlace(node, (*step, f"--nodelist={node}")) for node in nodes]


def _slurm(command: list[str]) -> str:
    """Return what a command of Slurm prints, nothing where it knows no such job."""
    environment = {name: value for name, value in os.environ.items() if not _OPTIONS.match(name) or name in _CLUSTER}
    try:
        told = subprocess.run(
            command, capture_output=True, text=True, timeout=_SLURM, check=False, env=environment,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        why = f"no answer within {_SLURM:.0f} s"
    except OSError as error:
        why = error.strerror or str(error)
    else:
        if told.returncode == 0:
            return told.stdout
        lines = told.stderr.strip().splitlines() or [f"exit code {told.returncode}"]
        if "Invalid job id specified" in told.stderr:
            return ""
        why = lines[-1]
    raise UsageError("cannot ask Slurm: {program}: {why}", program=command[0], why=why)
