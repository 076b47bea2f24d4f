"""The table of several jobs: a row each, made of its report document, and the failures that jobs have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nccl_triage._version import __version__
from nccl_triage.ingest.walk import natural_key
from nccl_triage.parsers import templates

SCHEMA_VERSION = 1
#: Decisions on a restart, the worst first.
_DECISIONS = ("fix_first", "exclude_then_restart", "undecided", "restart")
VERDICTS = ("diagnosed", "unknown", "healthy")
#: Outcomes of a job of unknown cause that did not fail as far as its log goes.
_OPEN = ("cut", "none", "running", "finished")


def row(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a job."""
    best = (document.get("diagnoses") or [None])[0] if document.get("verdict") == "diagnosed" else None
    restart, story = document.get("restart") or {}, document.get("incident") or {}
    return {
        "job": name,
        "verdict": document.get("verdict"),
        "outcome": (document.get("outcome") or {}).get("state"),
        **{name: best.get(name) if best else None for name in ("cause", "title", "title_zh", "status", "confidence")},
        "culprits": [{key: one.get(key) for key in ("rank", "host", "gpu", "address")} for one in _culprits(best)],
        "headline": document.get("headline") or "",
        "headline_zh": document.get("headline_zh"),
        "restart": {"decision": restart.get("decision"), "exclude": restart.get("exclude") or []},
        "started": story.get("started"),
        "world_size": (document.get("job") or {}).get("world_size"),
        "foreign_rules": [name for file in document.get("foreign_rules") or [] for name in file.get("ids") or []],
        "files": [one["path"] for one in document.get("inputs") or []],
        "report": None,
    }


def _culprits(best: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    return list(best.get("culprits") or []) if best else []


def table(rows: Iterable[dict[str, Any]], notes: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return the table: the worst first, with the jobs that failed alike under one failure."""
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in rows:
        alike.setdefault(_kind(one), []).append(one)
    ordered = sorted(alike.values(), key=_gravity)
    jobs: list[dict[str, Any]] = []
    failures = []
    for number, same in enumerate(ordered, 1):
        same.sort(key=lambda one: natural_key(one["job"]))
        jobs += [{**one, "failure": number} for one in same]
        first = {key: value for key, value in same[0].items() if key not in ("job", "files", "started", "report")}
        failures.append({"number": number, "count": len(same), "jobs": [one["job"] for one in same], **first})
    counts = Counter(one["verdict"] for one in jobs)
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "nccl-triage", "version": __version__},
        "counts": {"jobs": len(jobs), **{verdict: counts[verdict] for verdict in VERDICTS}},
        "failures": failures,
        "jobs": jobs,
        "notes": [note["en"] for note in notes],
        "notes_zh": [note["zh"] for note in notes],
    }


def _kind(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what jobs that went alike share: the cause, the hosts that it lies with, and the sentence but for its numbers."""
    hosts = tuple(sorted({str(who["host"] or who["address"] or "") for who in one["culprits"]}))
    told = "" if one["verdict"] == "healthy" else templates.template(one["headline"])
    return one["verdict"], one["outcome"], one["cause"], one["restart"]["decision"], hosts, told


def _gravity(same: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Return a key that puts the worst first: what needs a repair, then what struck most jobs, then the surest."""
    one = same[0]
    decision = one["restart"]["decision"]
    open_end = one["verdict"] == "unknown" and one["outcome"] in _OPEN
    return (
        VERDICTS.index(one["verdict"]) if one["verdict"] in VERDICTS else len(VERDICTS),
        open_end,
        _DECISIONS.index(decision) if decision in _DECISIONS else len(_DECISIONS),
        -len(same),
        -(one["confidence"] or 0.0),
        natural_key(min(each["job"] for each in same)),
    )
