"""Make the logs of the manifest from local clones of their repositories; nothing is fetched."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corpus.wild import manifest
from corpus.wild.blobs import blob_id, lines_of
from corpus.wild.manifest import Entry
from nccl_triage.errors import InputError, OutputError

#: How a repository is got whole, as it is printed for those that are absent.
FETCH = "git clone --mirror https://github.com/{owner}/{name} {clones}/{owner}/{name}.git"
#: Largest blob that is read.
_MOST_BYTES = 64 << 20


@dataclass(slots=True)
class Report:
    """What was rebuilt, and what is missing."""

    rebuilt: list[Entry] = field(default_factory=list)
    #: Repository -> ids of logs that need it.
    absent: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    #: What is wrong with single files of repositories that are there.
    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return not self.absent and not self.broken

    def text(self, clones: Path, fetch: str) -> str:
        """Return it as lines; ``fetch`` is the command to print for each repository that is absent."""
        lines = [f"note: {note}" for note in self.notes]
        for repo, ids in sorted(self.absent.items()):
            lines.append(f"missing: repository {repo}, for {', '.join(ids)}")
            if fetch != "none":
                lines.append(f"  {_filled(fetch, repo, clones)}")
        lines += [f"missing: {text}" for text in self.broken]
        if self.broken:
            lines.append(
                "  a clone lacks a file if it is shallow or partial, or if history was rewritten: mirror it again"
            )
        repositories = len({entry.repo for entry in self.rebuilt})
        lines.append(f"{len(self.rebuilt)} logs of {repositories} repositories rebuilt")
        return "\n".join(lines)


def _filled(command: str, repo: str, clones: Path) -> str:
    """Return a command with the names of a repository in it; only these placeholders count."""
    owner, _, name = repo.partition("/")
    for key, value in (("{owner}", owner), ("{name}", name), ("{clones}", shlex.quote(str(clones)))):
        command = command.replace(key, value)
    return command


def _is_git_dir(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir()


def git_dirs(clones: Path, repo: str) -> Iterator[Path]:
    """Yield the git directories of a repository below a folder of clones, bare ones and those of work trees."""
    owner, _, name = repo.partition("/")
    joined = clones / f"{owner}+{name}"
    places = [clones / owner / name, clones / owner / f"{name}.git", joined]
    places += sorted(path for path in joined.iterdir() if path.is_dir()) if joined.is_dir() else []
    for place in places:
        if _is_git_dir(place):
            yield place
        elif (place / ".git").exists():
            yield place / ".git"


def _git(git_dir: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # A partial clone would fetch what it lacks: no protocol is allowed.
    command = ["git", "-c", "protocol.allow=never", f"--git-dir={git_dir}", *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
    try:
        return subprocess.run(command, capture_output=True, check=False, env=environment, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise InputError("git is not installed", remedy="install git, which reads the clones") from None


def read_blob(git_dirs: Sequence[Path], blob: str) -> tuple[bytes | None, str]:
    """Return the content of a blob from the first repository that has it, or None and why."""
    for git_dir in git_dirs:
        size = _git(git_dir, "cat-file", "-s", blob)
        if size.returncode:
            continue
        if int(size.stdout) > _MOST_BYTES:
            return None, f"is larger than {_MOST_BYTES} bytes"
        found = _git(git_dir, "cat-file", "blob", blob)
        if found.returncode:
            return None, "is no file"
        if blob_id(found.stdout) != blob:
            return None, "does not have the content that its id stands for"
        return found.stdout, ""
    return None, "is not in the clone"


def _texts(entry: Entry, dirs: Sequence[Path], report: Report) -> list[bytes] | None:
    """Return the files of a log, or None where one is missing."""
    texts = []
    for file in entry.record["files"]:
        data, why = read_blob(dirs, file["blob"])
        if data is None:
            report.broken.append(f"{entry.id}: blob {file['blob']} ({file['path']}) of {entry.repo} {why}")
            return None
        texts.append(data)
    counted = {"lines": sum(map(lines_of, texts)), "bytes": sum(map(len, texts))}
    report.notes += [
        f"{entry.id}: the log has {number} {key}, the manifest says {entry.record[key]}"
        for key, number in counted.items()
        if number != entry.record[key]
    ]
    return texts


def rebuild(entries: Sequence[Entry], clones: Path, out: Path) -> Report:
    """Write the logs below ``out/logs`` and their labels to ``out/cases.jsonl``; whatever is missing is reported."""
    if not clones.is_dir():
        raise InputError("{clones} is no folder", remedy="name the folder that holds the clones", clones=clones)
    index = out / "cases.jsonl"
    if out.exists() and not index.is_file() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError("{out} holds something else", remedy="name a new folder", out=out)
    (out / "logs").mkdir(parents=True, exist_ok=True)
    report = Report()
    for entry in entries:
        folder = out / "logs" / entry.id
        if folder.is_symlink():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        dirs = list(git_dirs(clones, entry.repo))
        if not dirs:
            report.absent[entry.repo].append(entry.id)
            continue
        texts = _texts(entry, dirs, report)
        if texts is None:
            continue
        for name, data in zip(entry.names, texts, strict=True):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        report.rebuilt.append(entry)
    manifest.write_lines(index, [entry.case_record() for entry in report.rebuilt])
    return report
