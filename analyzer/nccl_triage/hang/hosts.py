"""Asks the hosts of a job by ``collect``, gathers their answers, and says which of the processes that were found are its ranks."""

from __future__ import annotations

import base64
import contextlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nccl_triage.hang import collect
from nccl_triage.hang.processes import ray_job
from nccl_triage.hang.words import said
from nccl_triage.hosts import asking, programs
from nccl_triage.hosts.links import HostPlace, Launcher
from nccl_triage.hosts.processes import ProcessLauncher
from nccl_triage.hosts.slurm import SlurmJob

#: Bytes of what was added to a log that are looked at.
_ADDED = 64 << 10


def program() -> programs.Program:
    """Return what runs on the hosts."""
    return programs.Program(programs.archive("nccl_triage.hang.collect", "hang"))


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


@dataclass(slots=True)
class JobHosts:
    """The hosts of a job. ``job`` is the job that is meant, ``slurm`` how Slurm's is recognised, if the way there says it.

    ``whole``: these are all hosts of the job.
    """

    launcher: Launcher
    job: str | None = None
    slurm: Mapping[str, Any] | None = None
    whole: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the hosts."""
        return [place.name for place in self.launcher.places]

    def ask(self, wishes: asking.Wishes, seconds: float) -> dict[int, HostReply]:
        """Run the program on hosts, by their index, each with its wish; ``seconds`` are what it may take there."""
        replies = {index: HostReply(self.names[index]) for index in wishes}
        problems = asking.ask(self.launcher, wishes, seconds, lambda index, answer: replies[index].take(answer))
        for index, problem in problems.items():
            replies[index].problem = problem
        return replies


def behind_commands(places: Sequence[HostPlace], python: str | None, job: SlurmJob | None = None) -> JobHosts:
    """Return this host, and hosts behind commands, where ``python`` runs; those of a job of Slurm are all that it has."""
    slurm = None if job is None else {"jobs": list(job.numbers), "step": job.step}
    return JobHosts(ProcessLauncher(places, program(), python), slurm=slurm, whole=job is not None)


def on_ray(address: str | None) -> JobHosts:
    """Return the nodes of a Ray cluster; raises UsageError when it cannot be joined."""
    from nccl_triage.hosts.ray_launcher import RayLauncher
    from nccl_triage.hosts.ray_nodes import SESSION

    launcher = RayLauncher(address, program(), silence=float("inf"))
    sessions = {Path(node.logs).parent.name for node in launcher.nodes} - {Path(SESSION).parent.name}
    return JobHosts(launcher, ray_job(sessions.pop()) if len(sessions) == 1 else None, whole=True)


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
