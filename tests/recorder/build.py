"""Dumps as NCCL's recorder writes them, made by hand: a row of calls for each rank."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_triage.observations.recorder_table import RecorderTable
from nccl_triage.observations.store import SourceInfo
from nccl_triage.recorder.compare import RecorderComparison, compare
from nccl_triage.tool_reports import flight_recorder

#: op, elements, and (optional) state; ``send 0->1`` and ``recv 1<-0`` are point to point.
Call = tuple[Any, ...]
START = 1_795_352_716_000_000_000


def entry(record: int, seq: int, call: Call, group: str = "0", desc: str = "default_pg") -> dict[str, Any]:
    op, numel, *rest = call
    state = rest[0] if rest else "completed"
    p2p = op.startswith(("send", "recv"))
    return {
        "record_id": record, "pg_id": int(group), "process_group": (group, desc),
        "collective_seq_id": 0 if p2p else seq, "p2p_seq_id": seq if p2p else 0, "op_id": record + 1,
        "is_p2p": p2p, "profiling_name": f"nccl:{op}", "time_created_ns": START + record * 1_000_000,
        "input_sizes": [[numel]], "output_sizes": [[numel]],
        "input_dtypes": [rest[1] if len(rest) > 1 else "Float"], "output_dtypes": [rest[1] if len(rest) > 1 else "Float"],
        "state": "scheduled" if state == "given-up" else state, "retired": state in ("completed", "given-up"),
        "timeout_ms": 600_000, "frames": [{"name": "step", "filename": f"train_{op.split()[0]}.py", "line": seq}],
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
    }  # fmt: skip


def dump(calls: Sequence[Call], world: int, first: int = 0, version: str = "2.10") -> dict[str, Any]:
    """Return a dump of the default group; ``first``: as many older records were overwritten."""
    entries, seq, p2p = [], 0, 0
    for record, call in enumerate(calls):
        point = call[0].startswith(("send", "recv"))
        seq, p2p = seq + (not point), p2p + point
        entries.append(entry(record, p2p if point else seq, call))
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    return {"version": version, "pg_config": config, "pg_status": {}, "entries": entries[first:]}


def table(dumps: Mapping[int, dict[str, Any]], folder: str = "fr") -> RecorderTable:
    found = RecorderTable()
    for rank, document in dumps.items():
        info = SourceInfo(f"{folder}/nccl_trace_rank_{rank}")
        assert flight_recorder.render(pickle.dumps(document, 2), info) is not None, info.problems
        assert info.recorder is not None
        found.absorb(info.recorder)
    return found


def job(*rows: Sequence[Call], world: int | None = None, first: int = 0) -> RecorderComparison:
    """Return the comparison of a job in which rank N made the calls of row N; None: that rank left no dump."""
    size = world or len(rows)
    return compare(table({rank: dump(row, size, first) for rank, row in enumerate(rows) if row is not None}))


def blamed(folder: Path) -> list[int]:
    """Return the ranks that the dumps of a folder blame."""
    found = RecorderTable()
    for path in sorted(folder.iterdir()):
        info = SourceInfo(path.as_posix())
        assert flight_recorder.render(path.read_bytes(), info) is not None and not info.problems, info.problems
        assert info.recorder is not None
        found.absorb(info.recorder)
    return sorted({rank for finding in compare(found).findings for rank in finding.ranks if finding.kind != "waits"})
