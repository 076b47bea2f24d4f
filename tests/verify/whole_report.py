"""A report of the whole published shape, as the command reads it from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nccl_triage._version import __version__


def document(
    *causes: str,
    hosts: Sequence[str] = ("node-a",),
    world: int = 2,
    env: Mapping[str, str] | None = None,
    numel: int = 4096,
) -> dict[str, Any]:
    """Return a report that suspects some causes of an all-reduce."""
    texts = dict.fromkeys(("family", "title", "title_zh", "explanation", "explanation_zh"), "a text")
    entry = {**texts, "status": "possible", "confidence": 0.6, "score": 2.0}
    unknown = dict.fromkeys(("seq", "numel_out", "world_size", "process_group", "elapsed_ms"))
    open_ = dict.fromkeys(("next_check", "experiment", "verification"))
    lists = {name: [] for name in ("culprits", "evidence", "against", "fixes", "contributions")}
    return {
        "schema_version": 1,
        "tool": {"name": "nccl-triage", "version": __version__, "rules": ""},
        "verdict": "diagnosed",
        "headline": "Possible: something",
        "headline_zh": "可能：某事",
        "diagnoses": [{"cause": cause, **entry, **lists, **open_} for cause in causes],
        "collective": {**unknown, "op": "ALLREDUCE", "numel_in": numel, "dtype": "float32", "timeout_ms": 600000},
        "job": {
            "world_size": world,
            "hosts": [{"name": name, "addresses": [], "ranks": []} for name in hosts],
            "env": dict(env or {}),
            "ranks": [],
            "launcher": None,
            "frameworks": [],
            "software": {},
        },
        **{name: [] for name in ("symptoms", "timeline", "excerpts", "inputs", "notes", "notes_zh")},
        "timing": {},
    }
