"""Who failed how often: by host, GPU, rank and cause, from incidents alone.

Only causes that are established or supported count, and an incident counts once for each that it names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from nccl_triage import messages
from nccl_triage.history.model import Incident, Suspect

Kind = Literal["host", "gpu", "rank", "cause"]
KINDS: tuple[Kind, ...] = ("host", "gpu", "rank", "cause")
#: Days before an incident in which earlier failures are worth a word.
DAYS = 14
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What one host, GPU, rank or cause has to do with failures; ``hosts`` are all hosts that were named with it."""

    kind: Kind
    name: str
    host: str | None
    causes: tuple[tuple[str, int], ...]
    incidents: tuple[int, ...]
    first: float
    last: float
    hosts: tuple[str, ...]

    @property
    def times(self) -> int:
        """How many incidents."""
        return len(self.incidents)

    def says(self, days: float | None, lang: str) -> str:
        """Return it as a sentence; ``days`` is the time that was looked at, None for all."""
        causes = ", ".join(f"{cause} {times}" if len(self.causes) > 1 else cause for cause, times in self.causes)
        values: dict[str, object] = {
            "name": self.name, "times": self.times, "causes": causes, "hosts": len(self.hosts),
            "days": f"{days or 0:g}",
        }  # fmt: skip
        if self.kind == "host" or self.kind == "gpu":
            if days is None:
                return messages.fill("{name}: failures: {times} ({causes})", values, lang)
            if self.times == 1:
                return messages.fill("{name} failed once in {days} days: {causes}", values, lang)
            return messages.fill("{name} failed {times} times in {days} days: {causes}", values, lang)
        if self.kind == "cause":
            return messages.fill("{name}: failures: {times}, hosts: {hosts}", values, lang)
        return messages.fill("{name}: failures: {times}, hosts: {hosts} ({causes})", values, lang)


def recurrences(incidents: Iterable[Incident], kind: Kind, causes: Collection[str] | None = None) -> list[Recurrence]:
    """Return who of a kind failed, most often and latest first; only failures of ``causes`` count where they are given."""
    named: dict[tuple[str, str | None], dict[int, tuple[Incident, set[str]]]] = defaultdict(dict)
    for incident in incidents:
        if not incident.blames or (causes is not None and incident.cause not in causes):
            continue
        for name, host, suspect in _names(incident, kind):
            _, hosts = named[name, host].setdefault(incident.id, (incident, set()))
            if suspect is not None and suspect.host:
                hosts.add(suspect.host)
    found = [_recurrence(kind, name, host, list(entries.values())) for (name, host), entries in named.items()]
    return sorted(found, key=lambda one: (-one.times, -one.last, one.name))


def worked_since(incidents: Iterable[Incident], failed: Recurrence) -> int:
    """Return how many jobs without a failure ran on a host after it failed."""
    return sum(
        one.verdict == "healthy" and one.happened > failed.last and failed.host in one.hosts for one in incidents
    )


def gpu_name(suspect: Suspect) -> str | None:
    """Return what a GPU of a host goes by: its place on the bus, which outlives a reboot, else its index."""
    if suspect.host is None or (suspect.pci is None and suspect.gpu is None):
        return None
    return f"{suspect.host} GPU {suspect.pci or suspect.gpu}"


def _names(incident: Incident, kind: Kind) -> Iterator[tuple[str, str | None, Suspect | None]]:
    """Yield name and host of what an incident counts against, and the suspect behind it."""
    for suspect in incident.culprits:
        if kind == "host" and suspect.host:
            yield suspect.host, suspect.host, suspect
        elif kind == "gpu" and (name := gpu_name(suspect)):
            yield name, suspect.host, suspect
        elif kind == "rank" and suspect.rank is not None:
            yield f"rank {suspect.rank}", None, suspect
        elif kind == "cause" and incident.cause:
            yield incident.cause, None, suspect
    if kind == "cause" and incident.cause and not incident.culprits:
        yield incident.cause, None, None


def _recurrence(kind: Kind, name: str, host: str | None, entries: list[tuple[Incident, set[str]]]) -> Recurrence:
    causes = Counter(str(incident.cause) for incident, _ in entries)
    moments = [incident.happened for incident, _ in entries]
    return Recurrence(
        kind=kind,
        name=name,
        host=host,
        causes=tuple(sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))),
        incidents=tuple(sorted(incident.id for incident, _ in entries)),
        first=min(moments),
        last=max(moments),
        hosts=tuple(sorted(set[str]().union(*(hosts for _, hosts in entries)))),
    )
