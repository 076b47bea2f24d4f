"""The form of a label: which fields it has, what each may hold, and what must agree between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import date
from typing import Any

KINDS = (
    "pretraining", "fine-tuning", "rl", "serving", "vision", "speech", "science", "benchmark", "data", "other",
)  # fmt: skip
OUTCOMES = ("finished", "running", "stopped", "failed", "hung", "cut", "none")
LAUNCHERS = (
    "torchrun", "torch.distributed.launch", "deepspeed", "accelerate", "srun", "mpirun", "ray", "mp.spawn", "lightning",
    "python", "docker", "other",
)  # fmt: skip
SCHEDULERS = ("slurm", "lsf", "pbs", "sge", "htcondor", "cobalt", "flux", "kubernetes", "none")
DETERMINABLE = ("yes", "partly", "no")
ACTORS = ("user", "framework", "administrator", "nobody")
HOW_KNOWN = ("later log", "later commit", "readme", "judgement")
#: Answers that are no cause.
VERDICTS = ("healthy", "unknown")
#: Outcomes of a job that is healthy, and of a log that cannot tell.
WELL, OPEN = ("finished", "running"), ("cut", "none")

#: Most of anything that is counted; no log has more.
MOST = 10**9
_MOST_FILES = 4096
_REPOSITORY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,38})/[A-Za-z0-9._-]{1,100}")
_BLOB = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,80}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

#: Returns what is wrong with a value, or None.
Check = Callable[[Any], str | None]


def _text(most: int, empty: bool = False) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, str):
            return "is no text"
        if not empty and not value.strip():
            return "is empty"
        if len(value) > most:
            return f"has more than {most} characters"
        return "has control characters" if _CONTROL.search(value) else None

    return check


def _one_of(words: Collection[str]) -> Check:
    def check(value: Any) -> str | None:
        known = isinstance(value, str) and value in words
        return None if known else f"is none of {', '.join(words)}"

    return check


def _number(least: int, most: int = MOST) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return "is no whole number"
        return None if least <= value <= most else f"is not between {least} and {most}"

    return check


def _or_null(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _list_of(check: Check, most: int) -> Check:
    def every(value: Any) -> str | None:
        if not isinstance(value, list):
            return "is no list"
        if len(value) > most:
            return f"has more than {most} entries"
        return next((f"holds an entry that {wrong}" for item in value if (wrong := check(item))), None)

    return every


def _matches(pattern: re.Pattern[str], what: str) -> Check:
    return lambda value: None if isinstance(value, str) and pattern.fullmatch(value) else f"is no {what}"


def _truth(value: Any) -> str | None:
    return None if isinstance(value, bool) else "is neither true nor false"


def _day(value: Any) -> str | None:
    try:
        date.fromisoformat(value)
    except (TypeError, ValueError):
        return "is no date such as 2026-11-28"
    return None if len(value) == len("2026-11-28") else "is no date such as 2026-11-28"


def repository(value: Any) -> str | None:
    """Return what is wrong with the name of a repository; no part of it may lead out of a folder."""
    if not isinstance(value, str) or not _REPOSITORY.fullmatch(value):
        return "is no OWNER/NAME"
    return "is no OWNER/NAME" if value.partition("/")[2] in (".", "..", ".git") else None


def path(value: Any) -> str | None:
    """Return what is wrong with a path inside a repository; no part of it may lead out of a folder."""
    if not isinstance(value, str) or not 0 < len(value) <= 1000:
        return "is no path"
    if "\\" in value or re.search(r"[\x00-\x1f\x7f]", value):
        return "has a backslash or control characters"
    parts = value.split("/")
    if any(part in ("", ".", "..") or len(part.encode("utf-8", "replace")) > 255 for part in parts):
        return "is no plain relative path"
    return None


def files(value: Any) -> str | None:
    """Return what is wrong with the list of a log's files."""
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_FILES:
        return f"is no list of 1 to {_MOST_FILES} files"
    for item in value:
        if not isinstance(item, dict) or item.keys() != {"path", "blob"}:
            return "holds a file without exactly a path and a blob"
        if wrong := path(item["path"]):
            return f"holds a file whose path {wrong}"
        if not isinstance(item["blob"], str) or not _BLOB.fullmatch(item["blob"]):
            return "holds a file whose blob is no id of 40 hexadecimal digits"
    paths, blobs = ({item[key] for item in value} for key in ("path", "blob"))
    if not len(paths) == len(blobs) == len(value):
        return "names a file twice"
    folders = {"/".join(parts[:n]) for parts in (name.split("/") for name in paths) for n in range(1, len(parts))}
    return "names a file that is a folder of another" if folders & paths else None


def _culprit(value: Any) -> str | None:
    if not isinstance(value, dict) or not value.keys() <= {"rank", "host", "why"}:
        return "has other keys than rank, host and why"
    rank, host = value.get("rank"), value.get("host")
    if rank is None and host is None:
        return "names neither a rank nor a host"
    for name, wrong in (
        ("rank", _or_null(_number(0))(rank)),
        ("host", _or_null(_matches(_NAME, "name"))(host)),
        ("why", _text(1000, empty=True)(value.get("why", ""))),
    ):
        if wrong:
            return f"has a {name} that {wrong}"
    return None


def _fields(causes: Collection[str]) -> dict[str, Check]:
    answers = (*sorted(causes), *VERDICTS)

    def answer(value: Any) -> str | None:
        return None if isinstance(value, str) and value in answers else "is no known cause"

    name = _matches(_NAME, "name")
    return {
        "id": _matches(_NAME, "name"),
        "repo": repository,
        "files": files,
        "kind": _one_of(KINDS),
        "frameworks": _list_of(name, 40),
        "launcher": _one_of(LAUNCHERS),
        "scheduler": _one_of(SCHEDULERS),
        "collector": _text(80, empty=True),
        "year": _or_null(_number(1990, 2100)),
        "lang": _matches(re.compile(r"[a-z]{2,3}(?:-[A-Za-z]{2,4})?"), "language such as en or zh"),
        "hang": _truth,
        "ranks": _or_null(_number(1)),
        "hosts": _or_null(_number(1)),
        "runs": _number(0),
        "outcome": _one_of(OUTCOMES),
        "cause": answer,
        "also_acceptable": _list_of(answer, 12),
        "determinable": _one_of(DETERMINABLE),
        "culprit": _or_null(_culprit),
        "evidence_line": _or_null(_number(1)),
        "evidence_file": _or_null(_number(0, _MOST_FILES)),
        "who_must_act": _one_of(ACTORS),
        "fix": _text(2000, empty=True),
        "fix_that_helped": _or_null(_text(2000)),
        "how_known": _one_of(HOW_KNOWN),
        "why": _text(3000),
        "doubt": _text(2000, empty=True),
        "lines": _number(1),
        "bytes": _number(1),
        "reader": name,
        "date": _day,
    }


#: Fields that a second reader's label must have; the others that it may have are those below.
SECOND_REQUIRED = ("id", "cause", "outcome", "reader", "date")
SECOND = (
    *SECOND_REQUIRED, "also_acceptable", "determinable", "culprit", "evidence_line", "evidence_file", "hang", "why", "doubt",
)  # fmt: skip


def _agreement_within(record: Mapping[str, Any]) -> list[str]:
    """Return what does not agree between fields that are all right alone."""
    found = []
    cause, outcome = record["cause"], record["outcome"]
    if (cause == "healthy") != (outcome in WELL):
        found.append(f"cause {cause} does not go with outcome {outcome}")
    if outcome in OPEN and cause != "unknown":
        found.append(f"outcome {outcome} goes with cause unknown only")
    line, file = record.get("evidence_line"), record.get("evidence_file")
    if line is not None and cause in VERDICTS:
        found.append(f"evidence_line is not null, but the cause is {cause}")
    if "files" in record:
        if line is not None and file is None:
            found.append("evidence_line is in no file")
        if file is not None and file >= len(record["files"]):
            found.append("evidence_file is the number of no file")
        if line is not None and line > record["lines"]:
            found.append("evidence_line is behind the end of the log")
    return found


def problems(record: Any, causes: Collection[str], extra: Mapping[str, Check] | None = None) -> list[str]:
    """Return what is wrong with a collector's label, field by field; ``extra`` are further fields that it must have."""
    return _problems(record, _fields(causes) | dict(extra or {}), None)


def second_problems(record: Any, causes: Collection[str]) -> list[str]:
    """Return what is wrong with the label of a second reader."""
    fields = _fields(causes)
    return _problems(record, {name: fields[name] for name in SECOND}, SECOND_REQUIRED)


def _problems(record: Any, fields: Mapping[str, Check], required: Collection[str] | None) -> list[str]:
    if not isinstance(record, dict):
        return ["is no object"]
    found = [f"has no {name}" for name in (fields if required is None else required) if name not in record]
    found += [f"has the unknown field {str(name)[:40]!r}" for name in record if name not in fields]
    found += [f"{name} {wrong}" for name, check in fields.items() if name in record and (wrong := check(record[name]))]
    return found or _agreement_within(record)
