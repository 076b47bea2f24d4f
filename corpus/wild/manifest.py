"""The manifest: one object for each log, the split of its repository, and what of it was opened."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import orjson

from corpus.wild import schema
from nccl_triage.engine import load
from nccl_triage.errors import InputError
from nccl_triage.evaluation import advice, cases
from nccl_triage.evaluation.advice import JudgedAdvice
from nccl_triage.evaluation.cases import LabelledCase

FOLDER = Path(__file__).parent
SPLITS = ("open", "blind", "sealed")
#: A sealed repository that was looked into counts as this from then on.
OPENED = "opened"
#: Splits whose logs may be shown one by one.
SHOWN = ("open", OPENED)
_ID = re.compile(r"w[0-9]{4,6}")
#: Largest file of labels; a thousand logs take two megabytes.
_MOST_BYTES = 256 << 20


def split_of(repo: str) -> str:
    """Return the split of a repository: the SHA-256 of its name decides, so that all its logs share it."""
    digest = hashlib.sha256(b"nccl-triage wild split:" + repo.lower().encode()).digest()
    return SPLITS[int.from_bytes(digest[:8], "big") % len(SPLITS)]


def _id(value: Any) -> str | None:
    return None if isinstance(value, str) and _ID.fullmatch(value) else "is no id such as w0001"


def _source_id(value: Any) -> str | None:
    return None if isinstance(value, str) and 0 < len(value) <= 80 and value.isprintable() else "is no name"


#: Fields that the manifest adds to a collector's label.
_EXTRA: dict[str, schema.Check] = {
    "id": _id,
    "source_id": _source_id,
    "split": lambda value: None if value in SPLITS else f"is none of {', '.join(SPLITS)}",
}


@dataclass(frozen=True)
class Entry:
    """One log of the manifest; ``record`` is the object as it is stored."""

    record: dict[str, Any]
    opened: bool = False

    @property
    def id(self) -> str:
        """Its id, which never changes."""
        return str(self.record["id"])

    @property
    def repo(self) -> str:
        """OWNER/NAME of the repository."""
        return str(self.record["repo"])

    @property
    def split(self) -> str:
        """The split that it counts in."""
        return OPENED if self.opened else str(self.record["split"])

    @property
    def blobs(self) -> tuple[str, ...]:
        """Ids of its files' blobs, in order."""
        return tuple(file["blob"] for file in self.record["files"])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Where its files lie below its folder: their paths without the folders that all of them share."""
        parts = [file["path"].split("/") for file in self.record["files"]]
        shared = 0
        while all(len(p) > shared + 1 for p in parts) and len({p[shared] for p in parts}) == 1:
            shared += 1
        return tuple("/".join(p[shared:]) for p in parts)

    def case_record(self) -> dict[str, Any]:
        """Return the line of cases.jsonl, the form of labelled cases that ``nccl-triage evaluate`` reads."""
        label = self.record
        file = label["evidence_file"]
        several = len(self.names) > 1
        return {
            "id": self.id,
            "log": f"logs/{self.id}" if several else f"logs/{self.id}/{self.names[0]}",
            "cause": label["cause"],
            "also_acceptable": label["also_acceptable"],
            "determinable": label["determinable"],
            "culprit": label["culprit"],
            "evidence_line": label["evidence_line"],
            **({"evidence_file": self.names[file]} if several and file is not None else {}),
            "outcome": label["outcome"],
            "source": "wild",
            "family": self.repo,
            "lang": label["lang"],
            "kind": label["kind"],
            "split": self.split,
            **({} if self.split in SHOWN else {"blind": True}),
            **({"files": list(self.names)} if several else {}),
        }

    def case(self, folder: Path) -> LabelledCase:
        """Return the labelled case of the log that was rebuilt in a folder."""
        return cases.parse(self.case_record(), folder, judged_advice().get(f"wild/{self.id}"))


class ManifestError(InputError):
    """A file of the benchmark is damaged."""


@cache
def known_causes() -> frozenset[str]:
    """Return the ids of causes that a label may name."""
    return frozenset(load.load().causes)


@cache
def judged_advice() -> dict[str, JudgedAdvice]:
    """Return what was judged to have helped, by folder and id of the case."""
    return advice.read(FOLDER.parent / "advice.jsonl")


def objects(path: Path) -> list[tuple[int, Any]]:
    """Return the objects of a file of lines with their numbers; raises ManifestError for what is no JSON."""
    if not path.is_file():
        raise ManifestError("{path} does not exist", path=path)
    if path.stat().st_size > _MOST_BYTES:
        raise ManifestError("{path} is larger than {most} bytes", path=path, most=_MOST_BYTES)
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            found.append((number, orjson.loads(line)))
        except orjson.JSONDecodeError as error:
            raise ManifestError("{path}:{number}: {error}", path=path, number=number, error=error) from None
    return found


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write objects one a line, whole or not at all."""
    draft = path.with_name(f".{path.name}.part")
    draft.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    draft.replace(path)


def problems(record: Any, causes: Collection[str]) -> list[str]:
    """Return what is wrong with a line of the manifest."""
    found = schema.problems(record, causes, _EXTRA)
    if not found and record["split"] != split_of(record["repo"]):
        found.append(f"split is not {split_of(record['repo'])}, which the repository's name gives")
    return found


def opened(data: Path) -> set[str]:
    """Return the repositories that were opened."""
    path = data / "opened.jsonl"
    if not path.is_file():
        return set()
    found = set()
    for number, record in objects(path):
        repo = record.get("repo") if isinstance(record, dict) else None
        if schema.repository(repo):
            raise ManifestError("{path}:{number}: names no repository", path=path, number=number)
        found.add(str(repo).lower())
    return found


def read(data: Path = FOLDER) -> list[Entry]:
    """Return the logs of the manifest; raises ManifestError where it is absent or any line is wrong."""
    path = data / "manifest.jsonl"
    if not path.is_file():
        raise ManifestError(
            "{path} does not exist",
            remedy="python -m corpus.wild import FILES... makes it from the labels of collectors",
            path=path,
        )
    causes, looked_into = known_causes(), opened(data)
    entries: list[Entry] = []
    for number, record in objects(path):
        if wrong := problems(record, causes):
            raise ManifestError("{path}:{number}: {wrong}", path=path, number=number, wrong="; ".join(wrong))
        entries.append(Entry(record, record["repo"].lower() in looked_into))
    if doubles := duplicates(entries):
        raise ManifestError("{path}: {double}", path=path, double=doubles[0])
    return entries


def duplicates(entries: Sequence[Entry]) -> list[str]:
    """Return which ids and blobs occur twice, in words."""
    owners: dict[str, str] = {}
    ids: set[str] = set()
    found = []
    for entry in entries:
        if entry.id in ids:
            found.append(f"the id {entry.id} occurs twice")
        ids.add(entry.id)
        for blob in entry.blobs:
            if (owner := owners.setdefault(blob, entry.id)) != entry.id:
                found.append(f"blob {blob} belongs to {owner} and {entry.id}")
    return found


def chosen(entries: Sequence[Entry], splits: Sequence[str]) -> list[Entry]:
    """Return the logs of some splits; what was opened counts as open."""
    if "all" in splits:
        return list(entries)
    wanted = {*splits, OPENED} if "open" in splits else set(splits)
    return [entry for entry in entries if entry.split in wanted]
