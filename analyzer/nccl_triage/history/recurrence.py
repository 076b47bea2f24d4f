"""How often hosts, GPUs, ranks and causes failed, and what that says of the hosts of the present job.

Only causes that are established or supported count, and an incident counts once for each name in it. For a diagnosis
recurrences become events of role context from a source named ``<history>``; their line is the number of the latest
incident, as ``nccl-triage history show`` takes it. The rules of causes weigh them, weakly, where the logs show that cause
as well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from nccl_triage import messages
from nccl_triage.history.incidents import JobIdentity, KeptIncident, KeptSuspect
from nccl_triage.history.signatures import CAUSE, GPU, HOST, SOURCE
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import times

Kind = Literal["host", "gpu", "rank", "cause"]
KINDS: tuple[Kind, ...] = ("host", "gpu", "rank", "cause")
#: Days before an incident in which earlier failures count.
DAYS = 14
DAY = 86400.0


class Recurrence(NamedTuple):
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


def recurrences(
    incidents: Iterable[KeptIncident], kind: Kind, causes: Collection[str] | None = None
) -> list[Recurrence]:
    """Return who of a kind failed, most often and latest first; only failures of ``causes`` count where they are given."""
    named: dict[tuple[str, str | None], dict[int, tuple[KeptIncident, set[str]]]] = defaultdict(dict)
    for incident in incidents:
        if not incident.blames or (causes is not None and incident.cause not in causes):
            continue
        for name, host, suspect in _names(incident, kind):
            _, hosts = named[name, host].setdefault(incident.id, (incident, set()))
            if suspect is not None and suspect.host:
                hosts.add(suspect.host)
    found = [_recurrence(kind, name, host, list(entries.values())) for (name, host), entries in named.items()]
    return sorted(found, key=lambda one: (-one.times, -one.last, one.name))


def worked_since(incidents: Iterable[KeptIncident], failed: Recurrence) -> int:
    """Return how many jobs without a failure ran on a host after it failed."""
    return sum(
        one.verdict == "healthy" and one.happened > failed.last and failed.host in one.hosts for one in incidents
    )


def gpu_name(suspect: KeptSuspect) -> str | None:
    """Return what a GPU of a host goes by: its place on the bus, which outlives a reboot, else its index."""
    if suspect.host is None or (suspect.pci is None and suspect.gpu is None):
        return None
    return f"{suspect.host} GPU {suspect.pci or suspect.gpu}"


def _names(incident: KeptIncident, kind: Kind) -> Iterator[tuple[str, str | None, KeptSuspect | None]]:
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


def _recurrence(kind: Kind, name: str, host: str | None, entries: list[tuple[KeptIncident, set[str]]]) -> Recurrence:
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


#: Clocks of logs are read as UTC: the seconds by which they may be ahead of ours.
_AHEAD = 86400.0


def failed(observations: Observations) -> bool:
    """Tell whether any line speaks of a failure; without one the history is not consulted."""
    return any(event.is_failure for event in _each(observations))


def start_of(observations: Observations) -> float | None:
    """Return the time at which the logs begin by their own clock, None where they have no times."""
    known = (event.context.time for event in observations.kept())
    return min((time for time in known if time is not None and times.has_year(time)), default=None)


def time_of_failure(observations: Observations, now: float) -> float:
    """Return the time at which the logs end by their own clock, ``now`` where they have no times."""
    known = [
        time
        for event in observations.kept()
        if (time := event.context.time) is not None and times.has_year(time) and time <= now + _AHEAD
    ]
    return max(known, default=now + _AHEAD)


def recall(observations: Observations, earlier: Iterable[KeptIncident], job: JobIdentity | None = None) -> Observations:
    """Return what earlier incidents, those of the last ``DAYS`` days, say of the hosts, the GPUs and the job observed."""
    kept = list(earlier)
    found = Observations()
    present = hosts_of_job(observations)
    gpus = set(_failing_gpus(observations))
    for cause in sorted({str(incident.cause) for incident in kept if incident.blames}):
        for one in recurrences(kept, "host", (cause,)):
            if one.name in present:
                found.add(_event(HOST, one, cause), ("cause",))
        for one in recurrences(kept, "gpu", (cause,)):
            if one.name in gpus:
                found.add(_event(GPU, one, cause), ("cause",))
    of_job = _of_job(kept, job_names(observations.sources), job or JobIdentity(), start_of(observations))
    for one in recurrences(of_job, "cause"):
        found.add(_event(CAUSE, one, one.name), ("cause",))
    return found


def _of_job(kept: Iterable[KeptIncident], paths: set[str], job: JobIdentity, start: float | None) -> list[KeptIncident]:
    """Return the earlier incidents of a job: those of its name, else those with its paths and, where it is known, its command.

    What ran beside it, as the other tasks of an array do, was no run before it.
    """
    found = []
    for incident in kept:
        if start is not None and incident.dated and incident.happened >= start:
            continue
        if job.name is not None and incident.job is not None:
            same = job.name == incident.job
        else:
            same = not paths.isdisjoint(job_names(log.path for log in incident.inputs))
            same = same and (None in (job.command, incident.command) or job.command == incident.command)
        if same:
            found.append(incident)
    return found


_DIGITS = lazily(r"\d+")


def job_names(paths: Iterable[str]) -> set[str]:
    """Return what a job goes by: the paths of its logs without their numbers, which differ from run to run.

    What has no path of its own here (a pipe, a log of another host) names no job.
    """
    local = (path for path in paths if not path.startswith("<") and ":/" not in path)
    return {_DIGITS.sub("0", str(Path(path).absolute())) for path in local}


def _event(signature: str, one: Recurrence, cause: str) -> Event:
    fields = {
        "host": one.host or "",
        "gpu": one.name,
        "cause": cause,
        "times": str(one.times),
        "days": str(DAYS),
        "first": times.show(one.first),
        "last": times.show(one.last),
        "incidents": " ".join(map(str, one.incidents)),
        "hosts": " ".join(one.hosts),
    }
    for name in {HOST: ("gpu", "hosts"), GPU: ("hosts",), CAUSE: ("gpu", "host")}[signature]:
        del fields[name]
    context = Context(host=one.host)
    return Event(signature, SOURCE, max(one.incidents), one.says(DAYS, "en"), context, "context", fields)


def _each(observations: Observations) -> Iterator[Event]:
    """Yield one event of every kind of line and process."""
    for by_key in observations.buckets.values():
        for bucket in by_key.values():
            yield from bucket.first[:1]


def hosts_of_job(observations: Observations) -> set[str]:
    """Return the hosts that the observations name."""
    named = {event.context.host for event in _each(observations)}
    named |= {info.host for info in observations.sources.values()}
    return {host for host in named if host}


def _failing_gpus(observations: Observations) -> Iterator[str]:
    """Yield the GPUs that lines of failures name, as ``gpu_name`` does."""
    for event in observations.kept():
        host = event.context.host
        if not event.is_failure or not host:
            continue
        if event.context.gpu is not None:
            yield f"{host} GPU {event.context.gpu}"
        bus = event.fields.get("bdf", "").lower().split(".")[0].split(":")[-2:]
        if len(bus) == 2:
            yield f"{host} GPU {':'.join(bus)}"


def earliest(when: float) -> float:
    """Return the time since which failures before a moment count."""
    return when - DAYS * DAY
