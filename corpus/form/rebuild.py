"""Make the further logs that the models learn from (``logs.jsonl``) from local clones of their repositories.

They are of repositories whose logs are in the open third of ``corpus/wild``; a single reader labelled how they ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from corpus.wild.rebuild import git_dirs, read_blob
from nccl_triage.errors import InputError

LABELS = Path(__file__).with_name("logs.jsonl")


@dataclass(slots=True)
class Rebuilt:
    """How many logs were made, and what is missing."""

    logs: int = 0
    missing: list[str] = field(default_factory=list)


def labels() -> list[dict[str, Any]]:
    """Return the labels: repository, blob and path of each log, how it ended, cause and telling line."""
    return [orjson.loads(line) for line in LABELS.read_bytes().splitlines()]


def rebuild(clones: Path, out: Path) -> Rebuilt:
    """Write the logs and their labels (``cases.jsonl``) to a folder; nothing is fetched."""
    if not clones.is_dir():
        raise InputError("{clones} is no folder", remedy="name the folder that holds the clones", clones=clones)
    out.mkdir(parents=True, exist_ok=True)
    made, records = Rebuilt(), []
    for label in labels():
        data, why = read_blob(list(git_dirs(clones, label["repo"])), label["blob"])
        if data is None:
            made.missing.append(f"{label['id']}: blob {label['blob']} of {label['repo']} {why}")
            continue
        (out / f"{label['id']}.log").write_bytes(data)
        records.append(orjson.dumps(_case(label)))
        made.logs += 1
    (out / "cases.jsonl").write_bytes(b"\n".join(records) + b"\n")
    return made


def _case(label: dict[str, Any]) -> dict[str, Any]:
    """Return the label as a labelled case."""
    return {
        "id": label["id"],
        "log": f"{label['id']}.log",
        "cause": label["cause"],
        "also_acceptable": label["also"],
        "evidence_line": label["line"],
        "outcome": label["outcome"],
        "source": "form",
        "family": label["repo"],
    }
