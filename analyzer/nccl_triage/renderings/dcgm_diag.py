"""``dcgmi diag -j`` as one line a result: ``dcgm diag: test=memory gpu=3 status=Fail warnings=..``.

Source: DCGM 3 writes ``{"DCGM GPU Diagnostic": {"test_categories": [{"category", "tests": [{"name", "results": [{"gpu_id",
"status", "warnings", "info"}]}]}]}}``, with ``gpu_ids`` in some; DCGM 4 ``"DCGM Diagnostic"`` with ``entity_group`` and
``entity_id`` in the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nccl_triage.observations.store import SourceInfo
from nccl_triage.renderings import documents
from nccl_triage.renderings.form import Rendering

MAX_SIZE = 8 << 20
_KEYS = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
_MARKS = tuple(f'"{key}"'.encode() for key in _KEYS)
#: Characters of a warning, and results, that are told at most.
_TEXT, _RESULTS = 400, 20_000


def _recognises(name: str, sample: bytes) -> bool:
    return sample.lstrip()[:1] == b"{" and any(mark in sample for mark in _MARKS)


def _flat(value: object) -> str:
    """Return texts, and lists and mappings of them, as one line."""
    if isinstance(value, Mapping):
        return _flat(value.get("warning") or value.get("message") or list(value.values()))
    if isinstance(value, list):
        return "; ".join(filter(None, (_flat(item) for item in value[:8])))
    return " ".join(str(value).split()) if value is not None else ""


def _who(result: Mapping[str, Any]) -> str:
    for name in ("gpu_id", "gpu_ids", "entity_id"):
        if result.get(name) is not None:
            group = str(result.get("entity_group") or "GPU").lower()
            return f" {group}={_flat(result[name])[:80]}"
    return ""


def _results(document: Mapping[str, Any]) -> Iterator[str]:
    for category in documents.rows(document.get("test_categories")):
        for test in documents.rows(category.get("tests")):
            for result in documents.rows(test.get("results")):
                warning = _flat(result.get("warnings"))[:_TEXT]
                told = f" warnings={warning}" if warning else ""
                yield f"dcgm diag: test={_flat(test.get('name'))[:60]}{_who(result)} status={_flat(result.get('status'))[:20]}{told}"


def render(data: bytes, info: SourceInfo) -> bytes | None:
    """Return one line a result; None for another document."""
    whole = documents.load(data)
    inner = next((whole[key] for key in _KEYS if key in whole), None) if isinstance(whole, Mapping) else None
    if not isinstance(inner, Mapping):
        return None
    lines = [line for _, line in zip(range(_RESULTS), _results(inner), strict=False)]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


RENDERING = Rendering("dcgm-diag", MAX_SIZE, _recognises, render)
