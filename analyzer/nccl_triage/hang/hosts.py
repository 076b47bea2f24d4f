"""Reaches the hosts of a job: runs ``collect`` on each of them, as an archive that needs no installation, and gathers its answers.

A host is this one, one behind a command (``ssh NAME``, ``srun`` on a node of an allocation), or a node of a Ray cluster. One
that does not answer in time costs its own evidence only.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
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
from nccl_triage.verify.launchers.processes import ProcessLink

#: Bytes that one host may send, and the seconds to reach it.
MOST, REACH = 256 << 20, 30.0
#: Bytes of what was added to a log that are looked at.
_ADDED = 64 << 10
#: Seconds for a query of Slurm.
_SLURM = 20.0
Answers = list[dict[str, Any]]


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

    @property
    def has_spoken(self) -> bool:
        """Whether any answer has come."""
        return bool(self.found or self.samples or self.unseen or self.files)

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
    """A way to several hosts. ``job`` is the job that is meant, if the way says it."""

    names: Sequence[str]
    job: str | None

    def ask(self, wishes: Mapping[int, Mapping[str, Any]], seconds: float) -> dict[int, HostReply]:
        """Run the program on hosts, by their index, each with its wish; ``seconds`` are what it may take there."""

    def close(self) -> None:
        """End what was started."""


class CommandHosts:
    """This host, and hosts behind commands."""

    def __init__(self, places: Sequence[HostPlace], python: str | None) -> None:
        self.job: str | None = None
        self.names: Sequence[str] = [place.name for place in places]
        self._places = places
        self._python = python or sys.executable
        self._folder = Path(tempfile.mkdtemp(prefix="nccl-triage-"))
        self._archive = self._folder / "hang.zip"
        self._archive.write_bytes(program())

    def ask(self, wishes: Mapping[int, Mapping[str, Any]], seconds: float) -> dict[int, HostReply]:
        """See ``Reach``."""
        replies = {index: HostReply(self.names[index]) for index in wishes}
        links: dict[int, ProcessLink] = {}
        try:
            for index, wish in wishes.items():
                try:
                    links[index] = self._link(self._places[index], json.dumps(wish))
                except OSError as error:
                    replies[index].problem = error.strerror or str(error)
            self._gather(dict(links), replies, time.monotonic() + REACH + seconds)
        finally:
            for link in links.values():
                link.hang_up()
            for link in links.values():
                link.close()
        return replies

    def _link(self, place: HostPlace, wish: str) -> ProcessLink:
        if not place.command:
            return ProcessLink([sys.executable, str(self._archive), wish], self._folder)
        payload = bundle.boot_payload(self._archive.read_bytes())
        return ProcessLink(bundle.boot_command(place.command, self._python, (wish,)), self._folder, payload)

    @staticmethod
    def _gather(links: dict[int, ProcessLink], replies: Mapping[int, HostReply], deadline: float) -> None:
        sizes = dict.fromkeys(links, 0)
        while links and time.monotonic() < deadline:
            numbers = {number: index for index, link in links.items() if (number := link.descriptor()) is not None}
            ready, _, _ = select.select(list(numbers), [], [], 0.25)
            for index in [numbers[number] for number in ready]:
                for answer in links[index].receive():
                    kind = answer.get("answer")
                    sizes[index] += len(answer.get("data") or "")
                    if kind == "gone" and not replies[index].has_spoken:
                        replies[index].problem = str(answer.get("error"))
                    if kind in ("gone", "done") or sizes[index] > MOST:
                        links.pop(index, None)
                    else:
                        replies[index].take(answer)
        for index in links:
            replies[index].problem = "no answer"

    def close(self) -> None:
        """See ``Reach``."""
        shutil.rmtree(self._folder, ignore_errors=True)


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


def slurm_places(job: str) -> list[HostPlace]:
    """Return the nodes of a Slurm job, reached by srun within its allocation; raises UsageError when Slurm does not know it."""
    told = _slurm(["squeue", "--noheader", "--states=RUNNING", f"--jobs={job}", "--format=%N"])
    nodes = _slurm(["scontrol", "show", "hostnames", ",".join(told.split())]).split() if told.split() else []
    if not nodes:
        raise UsageError("Slurm job {job} does not run", job=job, remedy="look for its number with: squeue --me")
    # The variables of an allocation that this shell is in would be taken for options.
    own = [word for name in os.environ if name.startswith(("SLURM_", "SRUN_", "PMI")) for word in ("-u", name)]
    step = ("env", *own, "srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--export=ALL")
    return [HostPlace(node, (*step, f"--nodelist={node}")) for node in nodes]


def _slurm(command: list[str]) -> str:
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=_SLURM, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            "cannot ask Slurm: {program}: {why}", program=command[0], why=getattr(error, "strerror", None) or error
        ) from None
    if told.returncode != 0:
        lines = told.stderr.strip().splitlines() or [f"exit code {told.returncode}"]
        raise UsageError("cannot ask Slurm: {program}: {why}", program=command[0], why=lines[-1])
    return told.stdout


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


def _list(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else []
