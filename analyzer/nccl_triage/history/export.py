"""Incidents and recurrences as JSON, and the failed hosts as a Slurm node list, a hostfile without them or a plain list.

Names of hosts come from logs, and lists of them are pasted into shells: what is not a plain host name is never written.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from nccl_triage.history.incidents import KeptIncident
from nccl_triage.history.recurrence import DAY, DAYS, KINDS, Kind, Recurrence, recurrences, worked_since
from nccl_triage.lazy_regex import lazily
from nccl_triage.parsers import times

#: Of the JSON documents of ``history``.
SCHEMA_VERSION = 1


def incident_record(one: KeptIncident) -> dict[str, Any]:
    """Return an incident, with its logs where they were read with it."""
    data = asdict(one)
    del data["inputs"]
    shown = {
        "id": data.pop("id"),
        "time": times.show(one.happened),
        "dated": data.pop("dated"),
        "recorded": times.show(one.recorded),
        **{key: value for key, value in data.items() if key not in ("happened", "recorded")},
        "hosts": list(one.hosts),
        "culprits": [asdict(suspect) for suspect in one.culprits],
    }
    if one.inputs:
        shown["inputs"] = [{"path": log.path, "bytes": log.bytes, "lines": log.lines} for log in one.inputs]
    return shown


def recurrence_record(one: Recurrence, days: float | None) -> dict[str, Any]:
    """Return a recurrence, with its sentence in both languages."""
    return {
        "kind": one.kind,
        "name": one.name,
        "host": one.host,
        "times": one.times,
        "causes": [{"cause": cause, "times": count} for cause, count in one.causes],
        "first": times.show(one.first),
        "last": times.show(one.last),
        "hosts": list(one.hosts),
        "incidents": list(one.incidents),
        "says": one.says(days, "en"),
        "says_zh": one.says(days, "zh"),
    }


def recent() -> float:
    """Return the time since which failures count by default."""
    return time.time() - DAYS * DAY


def host_records(
    incidents: Sequence[KeptIncident], days: float | None, causes: Collection[str] | None
) -> list[dict[str, Any]]:
    """Return the hosts that failed, with how many healthy jobs ran on each since."""
    found = recurrences(incidents, "host", causes)
    return [{**recurrence_record(one, days), "worked_since": worked_since(incidents, one)} for one in found]


def repeated(
    incidents: Sequence[KeptIncident], days: float | None, at_least: int, kinds: Sequence[Kind] = KINDS
) -> list[dict[str, Any]]:
    """Return every host, GPU, rank and cause that failed at least this often."""
    found = (one for kind in kinds for one in recurrences(incidents, kind))
    return [recurrence_record(one, days) for one in found if one.times >= at_least]


#: A name of a host, or an IPv4 address: nothing that a shell, Slurm or a hostfile would read as something else.
_PLAIN = lazily(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)
_NUMBERED = lazily(r"(?P<stem>.*?)(?P<number>[0-9]{1,12})", re.ASCII)
#: The first word of a line in a hostfile: ``user@host:slots``, where user and slots are optional.
_ENTRY = lazily(r"\s*(?:[^\s#@]+@)?(?P<host>[^\s#:]+)")


def plain(hosts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the hosts whose names can be written, and those whose names cannot; both sorted, each once."""
    every = sorted(set(hosts))
    fit = [host for host in every if _PLAIN.fullmatch(host)]
    return fit, [host for host in every if not _PLAIN.fullmatch(host)]


def slurm_list(hosts: Iterable[str]) -> tuple[str, list[str]]:
    """Return a Slurm node list such as ``gpu[03,07-09],login1``, and the hosts that no node is named after.

    Slurm knows a node by the short name of its host; an address is no name.
    """
    fit, unfit = plain(hosts)
    unfit += [host for host in fit if _is_address(host)]
    stems: dict[str, set[str]] = defaultdict(set)
    for name in {host.partition(".")[0] for host in fit if not _is_address(host)}:
        numbered = _NUMBERED.fullmatch(name)
        stems[numbered["stem"] if numbered else name].add(numbered["number"] if numbered else "")
    parts = [part for stem in sorted(stems) for part in _nodes(stem, stems[stem])]
    return ",".join(parts), unfit


def _nodes(stem: str, numbers: set[str]) -> list[str]:
    """Return the nodes of one stem: the one without a number, and the numbered ones in brackets."""
    found = [stem] if "" in numbers else []
    ordered = sorted(numbers - {""}, key=lambda text: (len(text), int(text)))
    if len(ordered) == 1:
        return [*found, stem + ordered[0]]
    ranges: list[list[str]] = []
    for text in ordered:
        last = ranges[-1][-1] if ranges else ""
        if last and len(last) == len(text) and int(text) == int(last) + 1:
            ranges[-1].append(text)
        else:
            ranges.append([text])
    shown = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges]
    return [*found, f"{stem}[{','.join(shown)}]"] if shown else found


def hostfile(text: str, hosts: Collection[str]) -> tuple[str, int]:
    """Return a hostfile without the lines of these hosts, and how many were removed."""
    bad = {host.lower() for host in hosts}
    short = {host.partition(".")[0] for host in bad if not _is_address(host)}
    kept, gone = [], 0
    for line in text.splitlines(keepends=True):
        entry = _ENTRY.match(line)
        if entry and _named(entry["host"].lower(), bad, short):
            gone += 1
        else:
            kept.append(line)
    return "".join(kept), gone


def names_in_hostfile(text: str) -> list[str]:
    """Return the hosts that a hostfile lists."""
    return [entry["host"] for line in text.splitlines() if (entry := _ENTRY.match(line))]


def _named(host: str, bad: Collection[str], short: Collection[str]) -> bool:
    """Tell whether a host is among those; one of two names may lack the domain."""
    if host in bad or _is_address(host):
        return host in bad
    return host in short if "." not in host else host.partition(".")[0] in {name for name in bad if "." not in name}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
