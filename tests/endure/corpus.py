"""What the endurance run begins with: every log of the corpora, dumps of the flight recorder, documents of reports."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from nccl_triage import diagnose
from nccl_triage.render import render
from tests.recorder import build
from tests.render import documents

ROOT = Path(__file__).parents[2]
#: Bytes of one log that are taken: longer ones are slow, and repeat themselves.
LONGEST = 40_000


@cache
def logs() -> tuple[Path, ...]:
    """Return the files of the corpora, in the order of their names."""
    found = (path for name in ("recorded", "written") for path in (ROOT / "corpus" / name).rglob("*"))
    return tuple(sorted(path for path in found if path.is_file() and path.name != "cases.jsonl"))


def text(path: Path) -> bytes:
    """Return the beginning of a log."""
    with path.open("rb") as stream:
        return stream.read(LONGEST)


def dumps() -> list[dict[str, Any]]:
    """Return dumps of the flight recorder of one job, a fresh copy each time."""
    rows = (
        [("all_reduce", 8), ("send 0->1", 4, "started"), ("broadcast", 2, "given-up")],
        [("all_reduce", 8), ("recv 1<-0", 4), ("broadcast", 2, "scheduled"), ("all_gather", 16, "started")],
        [("all_reduce", 9, "started", "Half")],
    )
    return [build.dump(row, len(rows)) for row in rows]


#: How a dump is written.
WRITTEN: tuple[Callable[[Any], bytes], ...] = (
    *(lambda value, protocol=protocol: pickle.dumps(value, protocol) for protocol in (2, 4, 5)),
    lambda value: orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS),
)


@cache
def reports() -> tuple[bytes, ...]:
    """Return report documents as JSON: those made by hand, and some of real logs."""
    made = [render(documents.ALL[name](), "json") for name in sorted(documents.ALL)]
    real = (diagnose("-", stdin=io.BytesIO(text(path))).to_dict() for path in logs()[::150])
    return (*made, *(render(document, "json") for document in real))
