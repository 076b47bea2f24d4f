"""Merge labels of collectors into the manifest, and labels of second readers beside it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from corpus.wild import manifest, opening, schema
from corpus.wild.blobs import blob_id, lines_of
from corpus.wild.likeness import Shape, likeness, shape_of, shapes_below
from corpus.wild.manifest import Entry
from nccl_triage.errors import InputError

#: Fields of the manifest in the order in which they are written.
_ORDER = ("id", "source_id", "split")


@dataclass(slots=True)
class Report:
    """What came of an import, in words."""

    added: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    same: int = 0
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return it as lines."""
        lines = [f"refused: {text}" for text in self.refused] + [f"note: {text}" for text in self.notes]
        lines.append(
            f"{len(self.added)} added, {len(self.updated)} updated, {self.same} unchanged, {len(self.refused)} refused"
        )
        return "\n".join(lines)


def reserved(path: Path) -> Callable[[str], bool]:
    """Return the function ``is_reserved`` of a Python file: repositories that must not enter the benchmark."""
    spec = importlib.util.spec_from_file_location("reserved_repositories", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError("{path} is no Python file", path=path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, "is_reserved", None)
    if not callable(found):
        raise InputError("{path} has no function is_reserved", path=path)
    return lambda repo: bool(found(repo))


class OtherSet(NamedTuple):
    """Logs of another set, which must not come again: the blob ids of their files, and name and shape of each."""

    blobs: frozenset[str] = frozenset()
    shapes: tuple[tuple[str, Shape], ...] = ()

    @classmethod
    def of(cls, folder: Path) -> OtherSet:
        """Return the logs of a folder of labelled cases (``logs`` in it); none where it does not exist."""
        files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
        return cls(frozenset(blob_id(path.read_bytes()) for path in files), tuple(shapes_below(folder / "logs")))


def _texts_at_hand(record: dict[str, Any], logs: Path | None) -> dict[str, bytes] | None:
    """Return blob id -> content of the files that lie in the folder of a label, None where there is none."""
    name = str(record.get("id"))
    if logs is None or not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name) or not (logs / name).is_dir():
        return None
    contents = [path.read_bytes() for path in sorted((logs / name).rglob("*")) if path.is_file()]
    return {blob_id(data): data for data in contents}


def _recount(record: dict[str, Any], texts: dict[str, bytes], report: Report) -> list[str]:
    """Count lines and bytes from the log, which is right where the label is not; return what is wrong with the rest."""
    if wrong := schema.files(record.get("files")):
        return [f"files {wrong}"]
    if absent := [file["blob"] for file in record["files"] if file["blob"] not in texts]:
        return [f"the log at hand does not have blob {absent[0]}"]
    ordered = [texts[file["blob"]] for file in record["files"]]
    counted = {"lines": sum(map(lines_of, ordered)), "bytes": sum(map(len, ordered))}
    for key, number in counted.items():
        if record.get(key) != number:
            report.notes.append(f"{record['id']}: {key} were {record.get(key)}, the log has {number}")
            record[key] = number
    line, file = record.get("evidence_line"), record.get("evidence_file")
    if isinstance(line, int) and isinstance(file, int) and 0 <= file < len(ordered) and line > lines_of(ordered[file]):
        return [f"evidence_line {line} is behind the end of file {file}"]
    return []


def _next_id(entries: Iterable[Entry]) -> int:
    return max((int(entry.id[1:]) for entry in entries), default=0) + 1


def _stored(record: dict[str, Any], number: str, source_id: str) -> dict[str, Any]:
    own = {"id": number, "source_id": source_id, "split": manifest.split_of(record["repo"])}
    return {**own, **{key: value for key, value in record.items() if key not in _ORDER}}


class Merger:
    """Takes labels one after the other; ``entries`` are the logs of the manifest with what was added to them."""

    def __init__(
        self,
        entries: Sequence[Entry],
        is_reserved: Callable[[str], bool] | None = None,
        other: OtherSet | None = None,
    ) -> None:
        self.entries = list(entries)
        self.report = Report()
        self._by_blobs = {frozenset(entry.blobs): n for n, entry in enumerate(self.entries)}
        self._owners = {blob: entry.id for entry in self.entries for blob in entry.blobs}
        self._is_reserved = is_reserved
        self._other = other or OtherSet()
        #: Repositories of which another set holds a log.
        self.seen: set[str] = set()
        self._causes = manifest.known_causes()

    def take(self, record: Any, where: str, logs: Path | None) -> None:
        """Add a label, or replace that of the same log, or refuse it."""
        texts = _texts_at_hand(record, logs) if isinstance(record, dict) else None
        wrong = _recount(record, texts, self.report) if texts is not None else []
        wrong = wrong or schema.problems(record, self._causes) or self._outside(record)
        wrong = wrong or self._like_another(record, texts)
        if wrong:
            self.report.refused.append(f"{where}: {'; '.join(wrong)}")
            return
        blobs = frozenset(file["blob"] for file in record["files"])
        known = self._by_blobs.get(blobs)
        if known is None:
            self._add(record, blobs)
            return
        old = self.entries[known].record
        if (record["id"], record["reader"]) != (old["source_id"], old["reader"]):
            self.report.refused.append(f"{where}: the same log as {old['id']} (import --second takes a second label)")
            return
        new = _stored(record, old["id"], record["id"])
        if new == old:
            self.report.same += 1
        else:
            self.entries[known] = Entry(new, self.entries[known].opened)
            self.report.updated.append(old["id"])

    def _like_another(self, record: dict[str, Any], texts: dict[str, bytes] | None) -> list[str]:
        """Return why a log is one of another set, with other names and numbers; note whose sister logs are there."""
        if texts is None or not self._other.shapes:
            return []
        shape = shape_of(texts[file["blob"]] for file in record["files"])
        found = [(likeness(shape, known), name) for name, known in self._other.shapes]
        if any(like.is_sister for like, _ in found):
            self.seen.add(record["repo"])
        return next(([f"is the log {name} of another set"] for like, name in found if like.is_same), [])

    def _outside(self, record: dict[str, Any]) -> list[str]:
        """Return why a log may not enter, whatever its label says."""
        if self._is_reserved is not None and self._is_reserved(record["repo"]):
            return [f"{record['repo']} is reserved"]
        blobs = [file["blob"] for file in record["files"]]
        if seen := [blob for blob in blobs if blob in self._other.blobs]:
            return [f"blob {seen[0]} is a log of another set"]
        owners = {self._owners.get(blob) for blob in blobs}
        if owners != {None} and frozenset(blobs) not in self._by_blobs:
            return [f"shares a file with {sorted(owner for owner in owners if owner)[0]}"]
        return []

    def _add(self, record: dict[str, Any], blobs: frozenset[str]) -> None:
        number = f"w{_next_id(self.entries):04d}"
        self._by_blobs[blobs] = len(self.entries)
        self._owners.update(dict.fromkeys(blobs, number))
        self.entries.append(Entry(_stored(record, number, record["id"])))
        self.report.added.append(number)


def merge(
    data: Path,
    files: Sequence[Path],
    logs: Path | None = None,
    is_reserved: Callable[[str], bool] | None = None,
    other: OtherSet | None = None,
    skip: bool = False,
) -> Report:
    """Merge files of collectors into the manifest of ``data``; with any label refused nothing is written, unless ``skip``.

    The logs of a file lie in ``logs``, or in the folder of that name beside it, where they are at hand. A repository of
    which another set holds a log counts as opened: the authors of rules have seen its jobs.
    """
    entries = manifest.read(data) if (data / "manifest.jsonl").is_file() else []
    merger = Merger(entries, is_reserved, other)
    for file in files:
        beside = logs or file.parent / "logs"
        for number, record in manifest.objects(file):
            merger.take(record, f"{file}:{number}", beside if beside.is_dir() else None)
    if skip or not merger.report.refused:
        manifest.write_lines(data / "manifest.jsonl", [entry.record for entry in merger.entries])
        opening.note_seen(data, merger.entries, merger.seen)
    return merger.report


class _Finder:
    """Finds the log of a second label by the manifest's id, the collector's, or the blobs of its files."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._by_name = {entry.record["source_id"]: entry for entry in entries} | {entry.id: entry for entry in entries}
        self._by_blobs = {frozenset(entry.blobs): entry for entry in entries}

    def find(self, record: dict[str, Any]) -> Entry | None:
        """Return the log that a label is about."""
        if schema.files(record.get("files")) is None:
            return self._by_blobs.get(frozenset(file["blob"] for file in record["files"]))
        return self._by_name.get(str(record.get("id")))


def merge_second(data: Path, files: Sequence[Path], skip: bool = False) -> Report:
    """Merge labels of second readers into ``second.jsonl``; those of the first reader are passed over."""
    finder, causes, report = _Finder(manifest.read(data)), manifest.known_causes(), Report()
    path = data / "second.jsonl"
    kept = {
        (record["id"], record["reader"]): record for _, record in (manifest.objects(path) if path.is_file() else [])
    }
    for file in files:
        for number, label in manifest.objects(file):
            entry = finder.find(label) if isinstance(label, dict) else None
            # A collector's form has more fields than a second reader's.
            record = {key: label[key] for key in schema.SECOND if key in label} if isinstance(label, dict) else label
            wrong = schema.second_problems(record, causes)
            if not wrong:
                wrong = _about(record, entry)
            if wrong:
                report.refused.append(f"{file}:{number}: {'; '.join(wrong)}")
            if wrong or entry is None or record["reader"] == entry.record["reader"]:
                continue
            record["id"] = entry.id
            key = (entry.id, record["reader"])
            if kept.get(key) == record:
                report.same += 1
            else:
                (report.updated if key in kept else report.added).append(entry.id)
                kept[key] = record
    if skip or not report.refused:
        manifest.write_lines(path, [kept[key] for key in sorted(kept)])
    return report


def _about(record: dict[str, Any], entry: Entry | None) -> list[str]:
    if entry is None:
        return [f"{record['id']} is no log of the manifest"]
    return ["evidence_file is the number of no file"] if (record.get("evidence_file") or 0) >= len(entry.names) else []
