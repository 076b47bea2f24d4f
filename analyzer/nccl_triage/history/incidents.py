"""An incident as the history keeps it, without lines of logs and values of variables, and the marks that identify its logs.

The marks are digests of the first significant lines of a log, each with the time and the process that was named last:
different jobs print the same messages. They stay the same while a log grows, when it is compressed,
moved, copied or piped, and on every machine. Lines that carry neither a time nor a process id may be those of another
run of the same program: then the path counts, too.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import templates
from nccl_triage.story.jobs import traits_of

#: The statuses of a diagnosis that blame somebody; "possible" does not.
_SURE = ("established", "supported")


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """What a job goes by: the name that a user gave it, the scheduler's id, and a digest of its command without numbers."""

    name: str | None = None
    id: str | None = None
    command: str | None = None

    def is_other(self, name: str | None, id: str | None) -> bool:
        """Tell whether a job of this name or id is another one, however alike their logs are."""
        return bool((self.name and name and self.name != name) or (self.id and id and self.id != id))


@dataclass(frozen=True, slots=True)
class KeptSuspect:
    """A culprit that a diagnosis names: its process, host and GPU, as far as known."""

    host: str | None = None
    rank: int | None = None
    gpu: int | None = None
    address: str | None = None
    pid: int | None = None
    pci: str | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """One log: its path, its size, and the ``marks`` by which its content is recognised."""

    path: str
    bytes: int = 0
    lines: int = 0
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptIncident:
    """One diagnosis. Times are seconds of the epoch; ``dated``: the log says when it was, else it is when it was read."""

    verdict: str
    happened: float
    recorded: float
    dated: bool = False
    cause: str | None = None
    family: str | None = None
    status: str | None = None
    confidence: float | None = None
    headline: str = ""
    headline_zh: str = ""
    world_size: int | None = None
    launcher: str | None = None
    hosts: tuple[str, ...] = ()
    host_count: int = 0
    software: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""
    #: See ``JobIdentity``.
    job: str | None = None
    job_id: str | None = None
    command: str | None = None
    bytes: int = 0
    lines: int = 0
    culprits: tuple[KeptSuspect, ...] = ()
    inputs: tuple[Input, ...] = ()
    id: int = 0

    @property
    def blames(self) -> bool:
        """Whether it names a cause surely enough to count against somebody."""
        return self.verdict == "diagnosed" and self.status in _SURE


#: The most marks of a log, and their length in hexadecimal digits.
MOST, DIGITS = 16, 8


def marks_of(observations: Observations) -> dict[str, tuple[str, ...]]:
    """Return the marks of every source, those of its earliest lines first."""
    earliest: dict[str, dict[int, Event]] = defaultdict(dict)
    for by_key in observations.buckets.values():
        for bucket in by_key.values():
            for event in bucket.first:  # the last ones change while a log grows
                if event.source in observations.sources:
                    earliest[event.source].setdefault(event.line, event)
    return {
        source: _digests(source, [events[line] for line in sorted(events)[:MOST]])
        for source, events in earliest.items()
    }


def _digests(source: str, events: list[Event]) -> tuple[str, ...]:
    told = [(event.context.time, event.context.pid) for event in events]
    last = next(filter(any, told), None)
    path = str(Path(source).absolute()) if last is None else ""
    marks = []
    for event, one in zip(events, told, strict=True):
        last = one if any(one) else last
        marks.append(digest(f"{path}\0{last}\0{event.text}"))
    return tuple(marks)


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGITS // 2).hexdigest()


def identity_of(observations: Observations, name: str | None = None) -> JobIdentity:
    """Return what the job of observations goes by; ``name`` is what its user calls it."""
    told = traits_of(observations.kept())
    named = {info.job for info in observations.sources.values() if info.job is not None}
    ids = named if len(named) == 1 else told.ids
    command = digest(templates.template(min(told.commands))) if told.commands else None
    return JobIdentity(name, next(iter(ids)) if len(ids) == 1 else None, command)


def same_log(one: Iterable[str], two: Iterable[str]) -> bool:
    """Tell whether two logs are the same, or one the beginning of the other, by most marks of the shorter one."""
    first, second = set(one), set(two)
    fewer = min(len(first), len(second))
    return fewer > 0 and len(first & second) * 4 >= fewer * 3


def same_job(one: Iterable[Iterable[str]], two: Iterable[Iterable[str]]) -> bool:
    """Tell whether two sets of logs are of one incident: more than half of the smaller set is in the other."""
    ours, theirs = [set(marks) for marks in one if marks], [set(marks) for marks in two if marks]
    fewer, more = sorted((ours, theirs), key=len)
    shared = sum(any(same_log(marks, other) for other in more) for marks in fewer)
    return bool(fewer) and shared * 2 > len(fewer)
