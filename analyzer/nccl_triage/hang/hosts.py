"""Reaches the hosts of a job: runs ``collect`` on each of them, as an archive that needs no installation, and gathers its answers.

A host is this one, one behind a command (``ssh NAME``, ``srun`` on a node of an allocation), or a node of a Ray cluster. One
that does not answer in time costs its own evidence only.

Of Slurm: squeue(1) (``%A`` is the number of each task of an array and each component of a heterogeneous job, ``%i`` the one that
people write), srun(1) (``--overlap`` since 20.11; a step in a component by ``--het-group``). With 22.05, tasks have the number
of the first component, and only the job's own user may start a step, not even root.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pwd
import re
import select
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nccl_triage import archives
from nccl_triage.errors import UsageError
from nccl_triage.hang import collect
from nccl_triage.hang.processes import ray_job
from nccl_triage.hang.words import said
from nccl_triage.verify.collective_run import HostPlace
from nccl_triage.verify.launchers import bundle
from nccl_triage.verify.launchers.processes import FAREWELL, ProcessLink

#: Bytes that one host may send, and the seconds to reach it. Hosts that are being reached at once: from the tenth connection
#: on that has not logged in, sshd refuses some (``MaxStartups``), and all may go through one jump host.
MOST, REACH, CONNECTING = 256 << 20, 30.0, 8
#: Bytes of what was added to a log that are looked at.
_ADDED = 64 << 10
#: Seconds for a query of Slurm. A job, a task of an array or a component, and perhaps a step.
_SLURM = 20.0
_SLURM_JOB = re.compile(r"(\d{1,10}(?:[_+]\d{1,10})?)(?:\.(\d{1,10}|batch))?")
#: Variables that Slurm's commands take for options, but for those that say which cluster is meant and who asks.
_OPTIONS = re.compile(r"(?:SLURM|SRUN|SQUEUE|SALLOC|PMI)")
_CLUSTER = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})
_MOST_TASKS = 8


def program() -> bytes:
    """Return the archive: ``python ARCHIVE WISH`` prints what its host shows."""
    return archives.program("hang")


@dataclass(slots=True)
class HostReply:
    """What a host sent: its ``found`` processes, or the evidence of those that were chosen; or the ``problem`` why nothing came."""

    name: str
    found: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytearray] = field(default_factory=dict)
    grown: dict[str, int] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    unseen: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None

    def take(self, answer: Mapping[str, Any]) -> None:
        """Add an answer; what has another form is passed over."""
        kind = answer.get("answer")
        if kind == "found" and isinstance(answer.get("jobs"), dict):
            self.found = dict(answer)
        elif kind == "file" and isinstance(answer.get("name"), str):
            with contextlib.suppress(KeyError, ValueError, TypeError, zlib.error):
                piece = zlib.decompressobj().decompress(base64.b64decode(answer["data"]), 2 * collect.PIECE)
                self.files.setdefault(answer["name"], bytearray()).extend(piece)
        elif kind == "grown" and isinstance(answer.get("name"), str) and isinstance(answer.get("bytes"), int):
            self.grown[answer["name"]] = answer["bytes"]
        elif kind == "sample" and isinstance(answer.get("pid"), int):
            self.samples.append(dict(answer))
        elif kind == "unseen" and isinstance(answer.get("why"), str):
            self.unseen.append(dict(answer))
            if answer.get("what") == "find":
                self.problem = said(answer, "en")

    def added(self) -> bytes:
        """Return what was added to the logs between the two samples, each log's last part."""
        parts = [bytes(self.files.get(name, b"")[-grown:]) for name, grown in self.grown.items() if grown > 0]
        return b"".join(part[-_ADDED:] for part in parts)


class Reach(Protocol):
    """A way to several hosts. ``job`` is the job that is meant, ``slurm`` how Slurm's is recognised, if the way says it.

    ``whole``: these are all hosts of the job.
    """

    names: Sequence[str]
    job: str | None
    slurm: Mapping[str, Any] | None
    whole: bool

    def ask(self, wishes: Mapping[int, Mapping[str, Any]], seconds: float) -> dict[int, HostReply]:
        """Run the program on hosts, by their index, each with its wish; ``seconds`` are what it may take there."""

    def close(self) -> None:
        """End what was started."""


class CommandHosts:
    """This host, and hosts behind commands."""

    def __init__(self, places: Sequence[HostPlace], python: str | None, slurm: Mapping[str, Any] | None = None) -> None:
        self.job: str | None = None
        self.slurm, self.whole = slurm, slurm is not None
        self.names: Sequence[str] = [place.name for place in places]
        self._places = places
        self._python = python or sys.executable
        self._payload = bundle.boot_payload(program())

    def ask(self, wishes: Mapping[int, Mapping[str, Any]], seconds: float) -> dict[int, HostReply]:
        """See ``Reach``."""
        replies = {index: HostReply(self.names[index]) for index in wishes}
        links: dict[int, ProcessLink] = {}
        try:
            self._gather(wishes, seconds, links, replies)
        finally:
            for link in links.values():
                link.hang_up()
            # All at once: many hosts may not answer.
            farewell = time.monotonic() + FAREWELL
            for link in links.values():
                link.close(max(0.0, farewell - time.monotonic()))
        return replies

    def _link(self, place: HostPlace, wish: Mapping[str, Any]) -> ProcessLink:
        # No file is written, here or there: the disk may be full.
        command, python = (place.command, self._python) if place.command else (("env",), sys.executable)
        link = ProcessLink(bundle.boot_command(command, python, ()), None, self._payload)
        link.send(wish)
        return link

    def _gather(
        self,
        wishes: Mapping[int, Mapping[str, Any]],
        seconds: float,
        links: dict[int, ProcessLink],
        replies: Mapping[int, HostReply],
    ) -> None:
        waiting, deadlines, sizes = list(wishes), dict[int, float](), dict.fromkeys(wishes, -1)
        while waiting or deadlines:
            while waiting and sum(sizes[index] < 0 for index in deadlines) < CONNECTING:
                index = waiting.pop(0)
                try:
                    links[index] = self._link(self._places[index], wishes[index])
                    deadlines[index] = time.monotonic() + REACH + seconds
                except OSError as error:
                    replies[index].problem = error.strerror or str(error)
            numbers = {links[index].descriptor(): index for index in deadlines}
            poll = select.poll()
            for number in numbers:
                poll.register(number, select.POLLIN)
            for index in [numbers[number] for number, _ in poll.poll(250)]:
                for answer in links[index].receive():
                    kind = answer.get("answer")
                    sizes[index] = max(sizes[index], 0) + len(answer.get("data") or "")
                    if kind == "gone":
                        replies[index].problem = str(answer.get("error"))
                    if kind in ("gone", "done") or sizes[index] > MOST:
                        del deadlines[index]
                        break
                    replies[index].take(answer)
            for index in [index for index, deadline in deadlines.items() if deadline < time.monotonic()]:
                del deadlines[index]
                said = links[index].said()
                replies[index].problem = f"no answer: {said}" if said else "no answer"

    def close(self) -> None:
        """See ``Reach``."""


class RayHosts:
    """The nodes of a Ray cluster."""

    def __init__(self, address: str | None) -> None:
        from nccl_triage.execution.cluster.targets import SESSION, nodes_of
        from nccl_triage.ray_access import Access

        self._access = Access(address, "nccl-triage-hang")
        nodes = nodes_of(self._access.ray.nodes())
        self.names: Sequence[str] = [node.name for node in nodes]
        sessions = {Path(node.logs).parent.name for node in nodes} - {Path(SESSION).parent.name}
        self.job: str | None = ray_job(sessions.pop()) if len(sessions) == 1 else None
        self.slurm: Mapping[str, Any] | None = None
        self.whole = True

    def ask(self, wishes: Mapping[int, Mapping[str, Any]], seconds: float) -> dict[int, HostReply]:
        """See ``Reach``; the wishes travel to all nodes together, each takes its own by the name of its node."""
        from nccl_triage.doctor.cluster import run_everywhere

        replies = {index: HostReply(self.names[index]) for index in wishes}
        by_name = {self.names[index]: json.dumps(wish) for index, wish in wishes.items()}
        for output in run_everywhere(self._access.ray, program(), by_name, seconds):
            if output.name not in by_name:
                continue
            reply = replies[self.names.index(output.name)]
            reply.problem = output.problem
            for line in output.text.splitlines():
                with contextlib.suppress(ValueError):
                    answer = json.loads(line)
                    if isinstance(answer, dict):
                        reply.take(answer)
        return replies

    def close(self) -> None:
        """See ``Reach``."""
        self._access.leave()


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A running job: its nodes, the numbers that its tasks may have, and the step if one was named."""

    places: tuple[HostPlace, ...]
    numbers: tuple[str, ...]
    step: str | None

    def wish(self) -> dict[str, Any]:
        """Return how ``collect`` recognises its processes."""
        return {"jobs": list(self.numbers), "step": self.step}


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


def once_each(replies: Mapping[int, HostReply]) -> list[int]:
    """Return the indices of replies, leaving out hosts that have answered under another name already."""
    seen: set[tuple[str, ...]] = set()
    kept = []
    for index, reply in sorted(replies.items()):
        identity = tuple(map(str, _list(reply.found.get("identity"))))
        if reply.problem is not None or not identity or identity not in seen:
            kept.append(index)
        seen.add(identity)
    return kept


def new_ranks(replies: Mapping[int, HostReply], index: int) -> dict[str, list[dict[str, Any]]]:
    """Return the ranks of a reply by job, without those that an earlier one has shown: a host sees into its containers."""
    boot = [*_list(replies[index].found.get("identity"))][:1]
    seen = {
        (job, one.get("rank"))
        for other, reply in replies.items()
        if other < index and boot and [*_list(reply.found.get("identity"))][:1] == boot
        for job, ranks in reply.found.get("jobs", {}).items()
        for one in ranks
    }
    told: dict[str, list[dict[str, Any]]] = replies[index].found.get("jobs", {})
    left = {
        job: [one for one in ranks if one.get("rank") is None or (job, one["rank"]) not in seen]
        for job, ranks in told.items()
    }
    return {job: ranks for job, ranks in left.items() if ranks}


def without_launchers(
    jobs: Mapping[str, dict[int, list[dict[str, Any]]]],
) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Return the jobs without what only Slurm numbers, where the same allocation has ranks that are known better.

    These are agents of torchrun whose ranks have gone, and programs that the batch script runs beside its steps.
    """
    certain: dict[str, int] = {}
    for by_host in jobs.values():
        allocation, certainty = _certainty(by_host)
        certain[allocation] = max(certainty, certain.get(allocation, 0))
    told = {job: (by_host, *_certainty(by_host)) for job, by_host in jobs.items()}
    return {
        job: by_host for job, (by_host, where, certainty) in told.items() if certainty == certain[where] or not where
    }


def _certainty(by_host: Mapping[int, Sequence[Mapping[str, Any]]]) -> tuple[str, int]:
    """Return the Slurm job that ranks belong to, and how well they are known as ranks."""
    one = next((one for ranks in by_host.values() for one in ranks), {})
    given = one.get("variables")
    given = given if isinstance(given, dict) else {}
    known = 2 if one.get("by") != "SLURM_PROCID" else int("SLURM_STEP_ID" in given)
    return str(given.get("SLURM_JOB_ID", "")), known


def _list(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else []
