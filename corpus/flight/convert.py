"""The same dumps as another back end or another version of the schema would have written them.

Gloo's recorder (torch 2.13) leaves out the names and members of process groups and never moves the state on, so that
torch's own analyser stops with a KeyError. ``as_nccl`` fills in what NCCL's recorder would have held: nothing that was
recorded is changed but the name of the back end, and what was retired counts as completed, unless another rank is
still in it: a kernel of NCCL ends on no rank then, while Gloo may come back with an error.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_triage.recorder.unpickle import loads
from nccl_triage.tool_reports.flight_recorder import rank_in

#: Fields of entries and the first version that has them.
SINCE = {
    "collective_seq_id": (2, 0), "p2p_seq_id": (2, 0), "process_group": (2, 1), "op_id": (2, 1), "is_p2p": (2, 3),
    "timeout_ms": (2, 2), "input_dtypes": (2, 3), "output_dtypes": (2, 3), "thread_id": (2, 10), "thread_name": (2, 10),
}  # fmt: skip

Dumps = dict[int, dict[str, Any]]


def read_set(folder: Path) -> Dumps:
    """Return the dumps of a folder by rank."""
    found: Dumps = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        rank = rank_in(path.name)
        document = json.loads(data) if data.startswith(b"{") else loads(data)
        if rank is not None and isinstance(document, dict):
            found[rank] = document
    return found


def as_nccl(dumps: Dumps, members: Mapping[str, list[int]] | None = None) -> Dumps:
    """Return dumps of Gloo as NCCL's recorder would have written them; ``members`` of groups other than the default one."""
    ranks = sorted(
        {rank for dump in dumps.values() for rank in json.loads(dump["pg_config"][""]["ranks"])} | set(dumps)
    )
    hanging = {_call(entry) for dump in dumps.values() for entry in dump["entries"] if not entry["retired"]}
    made: Dumps = {}
    for rank, dump in dumps.items():
        names = {tuple(entry["process_group"]) for entry in dump["entries"]}
        config = {
            name: {"name": name, "desc": desc, "ranks": str(list((members or {}).get(name, ranks)))}
            for name, desc in names
        }
        entries = []
        for entry in dump["entries"]:
            done = entry["retired"] and _call(entry) not in hanging
            created = entry["time_created_ns"]
            entries.append(
                {
                    **entry,
                    "process_group": tuple(entry["process_group"]),
                    "profiling_name": entry["profiling_name"].replace("gloo:", "nccl:"),
                    "state": "completed" if done else "scheduled",
                    "retired": done,
                    "time_discovered_completed_ns": created + 1_000_000 if done else None,
                }
            )
        made[rank] = {**dump, "pg_config": config, "entries": entries, "pg_status": _status(entries)}
    return made


def _call(entry: Mapping[str, Any]) -> tuple[str, int]:
    return entry["process_group"][0], entry["collective_seq_id"]


def _status(entries: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for entry in entries:
        row = found.setdefault(
            str(entry["pg_id"]),
            {"last_enqueued_collective": -1, "last_started_collective": -1, "last_completed_collective": -1},
        )
        row["last_enqueued_collective"] = entry["collective_seq_id"]
        if entry["state"] == "completed":
            row["last_completed_collective"] = entry["collective_seq_id"]
    return found


def as_version(dump: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a dump with the fields that a version of the schema has."""
    number = tuple(map(int, version.split(".")))
    entries = []
    for entry in dump["entries"]:
        made = {name: value for name, value in entry.items() if SINCE.get(name, (0, 0)) <= number}
        if number < (2, 0):
            made["seq_id"] = entry["collective_seq_id"]
        if number < (2, 1):
            made["pg_name"] = entry["process_group"][0]
        entries.append(made)
    made = {**dump, "version": version, "entries": entries}
    if number < (2, 4):
        del made["pg_status"]
    return made


def write_set(dumps: Dumps, folder: Path, prefix: str = "nccl_trace_rank_") -> Path:
    """Write dumps as pickles of protocol 2, as torch does."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, dump in dumps.items():
        (folder / f"{prefix}{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    return folder
