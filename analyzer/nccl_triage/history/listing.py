"""Incidents and recurrences as plain data: what ``history --format json`` prints and the pages are made of."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from nccl_triage.history.model import Incident
from nccl_triage.history.recurrence import DAY, DAYS, KINDS, Kind, Recurrence, recurrences, worked_since
from nccl_triage.parsers import times

#: Of the JSON documents of ``history``.
SCHEMA_VERSION = 1


def incident(one: Incident) -> dict[str, Any]:
    """Return an incident; its logs only where they were read with it."""
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


def recurrence(one: Recurrence, days: float | None) -> dict[str, Any]:
    """Return who failed how often, with the sentence in both languages."""
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
    """Return since when failures count where nobody says how long ago."""
    return time.time() - DAYS * DAY


def hosts(incidents: Sequence[Incident], days: float | None, causes: Collection[str] | None) -> list[dict[str, Any]]:
    """Return the hosts that failed, with how many healthy jobs ran on each since."""
    found = recurrences(incidents, "host", causes)
    return [{**recurrence(one, days), "worked_since": worked_since(incidents, one)} for one in found]


def repeated(
    incidents: Sequence[Incident], days: float | None, at_least: int, kinds: Sequence[Kind] = KINDS
) -> list[dict[str, Any]]:
    """Return every host, GPU, rank and cause that failed at least so often."""
    found = (one for kind in kinds for one in recurrences(incidents, kind))
    return [recurrence(one, days) for one in found if one.times >= at_least]
