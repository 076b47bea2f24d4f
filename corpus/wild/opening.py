"""Look into sealed logs: what was opened is written down, and counts as open from then on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from pathlib import Path

from corpus.wild import manifest
from corpus.wild.manifest import Entry
from nccl_triage.errors import UsageError


def open_sealed(data: Path, entries: Sequence[Entry], ids: Sequence[str]) -> list[Entry]:
    """Record that sealed logs are opened, all of their repositories, and return the manifest as it is then.

    ``all`` opens every one. Blind logs are never opened.
    """
    known = {entry.id: entry for entry in entries}
    wanted = [entry.id for entry in entries if entry.split == "sealed"] if list(ids) == ["all"] else list(ids)
    for name in wanted:
        split = known[name].split if name in known else None
        if split not in ("sealed", manifest.OPENED):
            reason = "is no log of the manifest" if split is None else f"is {split}, only sealed logs are opened"
            raise UsageError("{name} {reason}", name=name, reason=reason)
    repositories = {known[name].repo for name in wanted if known[name].split == "sealed"}
    _record(data, entries, repositories, "looked into")
    return manifest.read(data)


def note_seen(data: Path, entries: Sequence[Entry], repositories: Collection[str]) -> None:
    """Record repositories of which another set holds a log that those who write rules may read."""
    _record(data, entries, repositories, "another set holds a log of it")


def _record(data: Path, entries: Sequence[Entry], repositories: Collection[str], why: str) -> None:
    path = data / "opened.jsonl"
    kept = [record for _, record in manifest.objects(path)] if path.is_file() else []
    known = {str(record["repo"]).lower() for record in kept}
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    new = sorted({repo.lower(): repo for repo in repositories}.items())
    for lower, repo in new:
        if lower not in known:
            ids = [entry.id for entry in entries if entry.repo.lower() == lower]
            kept.append({"repo": repo, "ids": ids, "opened": now, "why": why})
    if len(kept) > len(known):
        manifest.write_lines(path, kept)
