"""The configuration: which files there are, in which order they count, and what the environment says.

First to last: variables ``NCCL_TRIAGE_<OPTION>``; ``.nccl-triage.yaml``; ``[tool.nccl-triage]`` of pyproject.toml;
``[nccl-triage]`` of setup.cfg; ``nccl-triage/config.yaml`` below ``$XDG_CONFIG_HOME`` (``~/.config``), the user's own
file. The three of the project are each looked for in the current folder and those above it, up to the root of the
repository or the user's home; outside of both, in the current folder only. A file counts if it has our section.

A key is the long name of an option. At the top level it counts for every command that has such an option and takes
the value; in a section named like a command (``verify:``, ``[tool.nccl-triage.verify]``, ``[nccl-triage.rules.list]``)
for that command. Here everything is text, with the place where it stands; ``settings`` makes values of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nccl_triage.cli import config_files
from nccl_triage.cli.config_files import Entry, Reader, Sections

PREFIX = "NCCL_TRIAGE_"
NAME = ".nccl-triage.yaml"
#: Variables that are no options.
OTHER_VARIABLES = (
    "NCCL_TRIAGE_CACHE", "NCCL_TRIAGE_NO_HYPERSCAN",
    # What --on-verdict tells its command, which may be one of ours.
    "NCCL_TRIAGE_VERDICT", "NCCL_TRIAGE_CAUSE", "NCCL_TRIAGE_CULPRIT", "NCCL_TRIAGE_CONFIDENCE", "NCCL_TRIAGE_REASON",
)  # fmt: skip
#: Larger files are none of ours.
_MAX_SIZE = 1 << 20
_PROJECT: tuple[tuple[str, Reader], ...] = (
    (NAME, config_files.read_yaml),
    ("pyproject.toml", config_files.read_toml),
    ("setup.cfg", config_files.read_cfg),
)


@dataclass(slots=True)
class Layer:
    """One file. ``project`` files may set less than the user's own; ``trusted`` ones belong to the user or root."""

    path: Path
    project: bool
    trusted: bool = True
    sections: Sections = field(default_factory=dict)

    def get(self, words: tuple[str, ...], key: str) -> Entry | None:
        """Return what the section of these words says for an option."""
        return self.sections.get(words, {}).get(key)


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables as a layer: ``NCCL_TRIAGE_BUDGET`` for all commands, ``NCCL_TRIAGE_VERIFY_BUDGET`` for one."""

    path: None = None
    project: bool = False
    trusted: bool = True

    def get(self, words: tuple[str, ...], key: str) -> Entry | None:
        """Return what the variable of an option says; an empty one counts as not set."""
        name = variable(words, key)
        value = os.environ.get(name)
        return Entry(value, name) if value else None


def variable(words: tuple[str, ...], key: str) -> str:
    """Return the variable of an option of a command, or with no words of every command."""
    return PREFIX + "_".join([*words, key]).replace("-", "_").upper()


def user_file() -> Path | None:
    """Return where the user's file would lie, None where there is no home."""
    base = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(base) if base else Path.home() / ".config") / "nccl-triage" / "config.yaml"
    except RuntimeError:
        return None


def layers() -> list[Layer]:
    """Read the files that count, in their order; raises UsageError for one that cannot be understood."""
    found: list[Layer] = []
    try:
        folders = list(_folders(Path.cwd()))
    except OSError:  # the current folder is gone
        folders = []
    for name, read in _PROJECT:
        nearest = (layer for folder in folders if (layer := _layer(folder / name, read, project=True)))
        found += [layer for layer in (next(nearest, None),) if layer is not None]
    own = user_file()
    layer = _layer(own, config_files.read_yaml, project=False) if own is not None else None
    return [*found, layer] if layer is not None else found


def _folders(start: Path) -> Iterator[Path]:
    """Yield the folders that may hold the project's files, the nearest first."""
    try:
        home: Path | None = Path.home()
    except RuntimeError:
        home = None
    above = [start, *start.parents]
    for index, folder in enumerate(above):
        if folder == home or (folder / ".git").exists() or (folder / ".hg").exists():
            yield from above[: index + 1]
            return
    yield start


def _layer(path: Path, read: Reader, project: bool) -> Layer | None:
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MAX_SIZE:
            return None
        data = path.read_bytes()
    except OSError:  # absent, or not ours to read
        return None
    if read is not config_files.read_yaml and b"nccl-triage" not in data:
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise config_files.broken(str(path), "it is no UTF-8 text") from None
    sections = read(path, text)
    trusted = state.st_uid in (0, os.geteuid()) and not state.st_mode & 0o002
    return Layer(path, project, trusted, sections) if sections else None
