"""The result files that ranks left in a folder, read line by line: what is malformed says nothing."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nccl_triage.lazy_regex import lazily
from nccl_triage.verify.collective_run import CollectiveRun

#: Bytes of one rank's file at most: an ordinary one has a few kilobytes.
_LARGEST = 16 << 20
_NAME = lazily(r"rank-(0|[1-9]\d{0,5})\.jsonl")
_INTERFACE: dict[str, type] = {
    "name": str, "address": str, "netmask": str, "mtu": int, "up": bool, "loopback": bool, "default": bool,
}  # fmt: skip
_NUMBER = (int, float)
#: Types of the fields that are reckoned or compared with; one of another type is dropped.
_FIELDS: dict[str, Any] = {
    "wrong": int, "median": _NUMBER, "seconds": (*_NUMBER, list), "torch": str, "nccl": str, "bus": str, "compute": dict,
    "call": str, "message": list, "type": str, "text": str, "entries": list, "own": bool, "numel": int,
}  # fmt: skip
#: A mark of these stages says nothing without this field.
NEEDED = {"call": "call", "part": "wrong", "size": "wrong", "done": "wrong"}


@dataclass(slots=True)
class RankFile:
    """The result file of one rank: its host's facts, its plan and start, its marks and its end."""

    plan: str
    attempt: str
    started: float
    facts: dict[str, Any]
    env: dict[str, str] = field(default_factory=dict)
    store: str | None = None
    marks: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None

    @property
    def host(self) -> str:
        """The name of the host."""
        return str(self.facts["host"])


def read_run(folder: Path, run: CollectiveRun, plan_id: str) -> dict[int, RankFile]:
    """Return the files of a run's ranks from its latest start; files of another plan or rank are ignored."""
    found = {}
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            name = _NAME.fullmatch(path.name)
            if name is not None and int(name[1]) < run.world:
                entry = read_rank(path)
                if entry is not None and entry.plan == plan_id:
                    found[int(name[1])] = entry
    latest = max(found.values(), key=lambda entry: entry.started, default=None)
    return {rank: entry for rank, entry in found.items() if latest is not None and entry.attempt == latest.attempt}


def read_rank(path: Path) -> RankFile | None:
    """Return what a rank's file holds, or None when it does not even say where the rank was."""
    found: RankFile | None = None
    for record in _records(path):
        stage = record["stage"]
        if stage == "task":
            facts = _facts(record.get("facts"))
            started = record.get("started")
            if facts is None or not isinstance(started, _NUMBER):
                return None
            found = RankFile(str(record.get("plan")), str(record.get("attempt")), float(started), facts)
        elif found is None:
            continue
        elif stage == "env":
            found.env = _strings(record.get("env"))
            found.store = str(record["store"]) if "store" in record else None
        elif stage == "exit":
            found.end = record
        else:
            found.marks.append({k: v for k, v in record.items() if k not in _FIELDS or typed(v, _FIELDS[k])})
    return found


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines that are records; the last one of a rank that was killed is often cut."""
    with contextlib.suppress(OSError), path.open("rb") as stream:
        for line in stream.read(_LARGEST).split(b"\n"):
            with contextlib.suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict) and isinstance(record.get("stage"), str) and _sound_time(record):
                    yield record


def _sound_time(record: Mapping[str, Any]) -> bool:
    value = record.get("t", 0.0)
    return typed(value, _NUMBER) and math.isfinite(value)


def typed(value: Any, wanted: Any) -> bool:
    """Tell whether a value is of a type, or of one of several; a bool is no number."""
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, wanted)


def _strings(value: Any) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


def _facts(value: Any) -> dict[str, Any] | None:
    """Return a host's facts without what is malformed, or None when the host has no name."""
    if not isinstance(value, dict) or not isinstance(value.get("host"), str) or not value["host"]:
        return None
    interfaces = value.get("interfaces")
    own = value.get("own_addresses")
    return {
        **value,
        "interfaces": [entry for entry in interfaces if _is_interface(entry)] if isinstance(interfaces, list) else [],
        "own_addresses": [str(entry) for entry in own] if isinstance(own, list) else [],
    }


def _is_interface(entry: Any) -> bool:
    if not isinstance(entry, dict) or not all(typed(entry.get(name), kind) for name, kind in _INTERFACE.items()):
        return False
    try:
        ipaddress.IPv4Network((entry["address"], entry["netmask"]), strict=False)
    except ValueError:
        return False
    return True
