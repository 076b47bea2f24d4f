"""Write recordings and their labels into ``corpus/recorded``."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from pathlib import Path
from typing import Any

from corpus.scenarios.recorder import Recording
from corpus.scenarios.scenario import Scenario

#: Recordings are examples, not archives: a longer one is refused.
MAX_BYTES = 400_000


def _evidence_line(scenario: Scenario, log: bytes) -> int | None:
    pattern = re.compile((scenario.telling or scenario.expect).encode())
    for number, line in enumerate(log.splitlines(), 1):
        if pattern.search(line):
            return number
    return None


def _judgement(scenario: Scenario, log: bytes) -> dict[str, Any]:
    healthy = scenario.cause == "healthy"
    return {
        "cause": scenario.cause,
        "also_acceptable": list(scenario.also),
        "determinable": scenario.determinable,
        "culprit": None
        if healthy
        else {
            "rank": scenario.culprit.ranks[0] if len(scenario.culprit.ranks) == 1 else None,
            "ranks": list(scenario.culprit.ranks),
            "host": scenario.culprit.hosts[0] if len(scenario.culprit.hosts) == 1 else None,
            "hosts": list(scenario.culprit.hosts),
            "why": scenario.culprit.why or scenario.injected,
        },
        "evidence_line": None if healthy else _evidence_line(scenario, log),
        "injected": scenario.injected,
        "family": scenario.family,
    }


def label(scenario: Scenario, recording: Recording, versions: dict[str, str], day: str) -> dict[str, Any]:
    """Return the line of ``cases.jsonl`` that describes a recording."""
    entry: dict[str, Any] = {
        "id": scenario.id,
        "log": f"logs/{scenario.id}.log",
        **_judgement(scenario, recording.combined),
        "world_size": scenario.world_size,
        "source": "recorded",
        "versions": {"python": versions["python"], **scenario.versions} if scenario.versions else versions,
        "commands": recording.commands,
        "actions": recording.acted,
        "exit_codes": recording.exit_codes,
        "killed_by_recorder": recording.killed,
        "recorded": day,
        "lang": "en",
    }
    if recording.files:
        entry["folder"] = f"runs/{scenario.id}"
    return entry


def relabel(root: Path, scenario: Scenario) -> bool:
    """Bring a recording's label up to date with its scenario, without recording again; False: there is none."""
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        index = root / "cases.jsonl"
        for entry in map(json.loads, index.read_text("utf-8").splitlines()):
            if entry["id"] == scenario.id:
                log = (root / entry["log"]).read_bytes()
                _replace_line(index, {**entry, **_judgement(scenario, log)})
                return True
    return False


def write(root: Path, entry: dict[str, Any], recording: Recording) -> None:
    """Write a recording's files and replace (or add) its line in ``cases.jsonl``, which stays sorted by id."""
    if len(recording.combined) > MAX_BYTES:
        raise ValueError(f"{entry['id']}: {len(recording.combined)} bytes are too many for an example")
    log = root / str(entry["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(recording.combined)
    folder = root / "runs" / str(entry["id"])
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in recording.files.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _replace_line(root / "cases.jsonl", entry)


def _replace_line(index: Path, entry: dict[str, Any]) -> None:
    entries = {}
    if index.is_file():
        entries = {e["id"]: e for e in map(json.loads, index.read_text("utf-8").splitlines())}
    entries[entry["id"]] = entry
    text = "".join(json.dumps(entries[key], ensure_ascii=False) + "\n" for key in sorted(entries))
    partial = index.with_suffix(".partial")
    partial.write_text(text, "utf-8")
    partial.replace(index)
