"""The configuration: which files there are, in which order they count, and what the environment says.

First to last: variables ``NCCL_TRIAGE_<OPTION>``; ``.nccl-triage.yaml``; ``[tool.nccl-triage]`` of pyproject.toml;
``[nccl-triage]`` of setup.cfg; ``nccl-triage/config.yaml`` below ``$XDG_CONFIG_HOME`` (``~/.config``), the user's own
file. The three of the project are each looked for in the current folder and those above it, up to the root of the
repository or the user's home; outside of both, in the current folder only. A file counts if it has our section, and
one of the project only after the user has allowed what it says (``consent``): a folder that was unpacked or cloned may
bring one along. A file that ``--config`` or its variable names counts in place of these.

A key is the long name of an option. At the top level it counts for every command that has such an option and takes
the value; in a section named like a command (``verify:``, ``[tool.nccl-triage.verify]``, ``[nccl-triage.rules.list]``)
for that command. Here everything is text, with the place where it stands; ``settings`` makes values of it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nccl_triage import files
from nccl_triage.cli import config_files
from nccl_triage.cli.config_files import ConfigEntry, Layer, Reader, others_cannot_write
from nccl_triage.errors import UsageError

PREFIX = "NCCL_TRIAGE_"
NAME = ".nccl-triage.yaml"
#: Variables that are no options.
OTHER_VARIABLES = (
    "NCCL_TRIAGE_CACHE", "NCCL_TRIAGE_CONFIG", "NCCL_TRIAGE_NO_HYPERSCAN",
    # What --on-verdict tells its command, which may be one of ours.
    "NCCL_TRIAGE_VERDICT", "NCCL_TRIAGE_CAUSE", "NCCL_TRIAGE_CULPRIT", "NCCL_TRIAGE_CONFIDENCE", "NCCL_TRIAGE_REASON",
)  # fmt: skip
#: The variable of ``--config``.
CHOSEN = "NCCL_TRIAGE_CONFIG"
#: Bytes of a configuration file at most.
MAX_SIZE = 256 << 10
#: A template of ``messages`` and its values.
Note = tuple[str, dict[str, object]]
_PROJECT: tuple[tuple[str, Reader], ...] = (
    (NAME, config_files.read_yaml),
    ("pyproject.toml", config_files.read_toml),
    ("setup.cfg", config_files.read_cfg),
)


class Environment(NamedTuple):
    """The variables as a layer: ``NCCL_TRIAGE_BUDGET`` for all commands, ``NCCL_TRIAGE_VERIFY_BUDGET`` for one."""

    path: None = None
    project: bool = False
    trusted: bool = True

    def get(self, words: tuple[str, ...], key: str) -> ConfigEntry | None:
        """Return the value of an option's variable; an empty one counts as not set."""
        name = variable(words, key)
        value = os.environ.get(name)
        return ConfigEntry(value, name) if value else None


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


@dataclass(slots=True)
class ConfigurationFiles:
    """The configuration files in use, in their order, and notes on those that are ignored."""

    layers: list[Layer] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def layers(chosen: str | None = None) -> list[Layer]:
    """Return the files that count, as ``read`` finds them."""
    return read(chosen).layers


def read(chosen: str | None = None, *, look: bool = True) -> ConfigurationFiles:
    """Read the files that count; raises UsageError for one of the user's that cannot be understood.

    ``chosen`` is read in place of the files of the project, ``look`` tells whether to look for these.
    """
    reading = ConfigurationFiles()
    if chosen is not None:
        reading.layers.append(named(Path(chosen)))
    elif look:
        for name, reader in _PROJECT:
            # One that does not count must not hide one above it that does, with its redact: true.
            next(filter(lambda path: _taken(path, reader, reading), _speaking(_here(), name, reader)), None)
    own = user_file()
    layer = _layer(own, config_files.read_yaml, project=False) if own is not None else None
    if layer is not None:
        reading.layers.append(layer)
    return reading


def _here() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # the current folder is gone
        return None


def found(start: Path | None) -> Iterator[tuple[Path, Reader]]:
    """Yield the files of the project that would count from a folder on, the nearest of each kind, with their reader."""
    for name, reader in _PROJECT:
        nearest = next(_speaking(start, name, reader), None)
        if nearest is not None:
            yield nearest, reader


def _speaking(start: Path | None, name: str, reader: Reader) -> Iterator[Path]:
    """Yield the files of a name that configure nccl-triage, the nearest first."""
    folders = _folders(start) if start is not None else ()
    return (folder / name for folder in folders if _speaks(folder / name, reader))


def _speaks(path: Path, reader: Reader) -> bool:
    """Tell whether a file exists that configures nccl-triage, or seems to."""
    try:
        data = files.read_regular(path, MAX_SIZE)
    except files.TooLarge:
        return reader is config_files.read_yaml
    except OSError:  # absent, no regular file, or not ours to read
        return False
    if reader is config_files.read_yaml:
        return bool(data.strip())
    if b"nccl-triage" not in data:
        return False
    try:
        return bool(reader(path, data.decode("utf-8-sig")))
    except (UsageError, UnicodeDecodeError):
        return True


def _taken(path: Path, reader: Reader, reading: ConfigurationFiles) -> bool:
    """Use a file that was found if the user has allowed its content; else note the command that allows it.

    Raises UsageError for one that was allowed and cannot be understood any more.
    """
    from nccl_triage.cli import consent  # seldom needed

    known = consent.of(path)
    if known is not None and known.denied:
        return False
    try:
        layer = _layer(path, reader, project=True)
    except UsageError as error:
        if known is not None:
            raise
        # Others cannot stop us with a file of which the user need not even know.
        template = "{place}: not a valid configuration, ignored ({why})"
        why = {lang: error.in_language(lang)[1] or "" for lang in ("en", "zh")}
        reading.notes.append((template, {"place": error.values.get("place", path), "why": why}))
        return False
    if layer is None:
        return False
    if known is not None and known.digest == consent.digest(layer):
        reading.layers.append(layer)
        return True
    template = (
        "{path} is ignored: it, or what it names, has changed since you allowed it; read it, then: "
        "nccl-triage config allow {quoted}"
        if known is not None
        else "{path} is ignored until you allow it; read it, then: nccl-triage config allow {quoted} (or config deny)"
    )
    reading.notes.append((template, {"path": path, "quoted": shlex.quote(str(path))}))
    return False


def named(path: Path) -> Layer:
    """Read the file that the user names for this run; raises UsageError where it cannot be read or has nothing of ours."""
    reader = {".toml": config_files.read_toml, ".cfg": config_files.read_cfg}.get(path.suffix, config_files.read_yaml)
    try:
        layer = _from(path, reader, project=True)
    except OSError as error:
        raise UsageError("cannot read {path}", path=path, cause="{why}", why=error.strerror or error) from None
    if layer is None:
        raise UsageError("{path} has no configuration of nccl-triage", path=path)
    return layer


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


def _layer(path: Path, reader: Reader, project: bool) -> Layer | None:
    """Read a file that may be absent; None when it does not configure nccl-triage."""
    try:
        return _from(path, reader, project)
    except files.TooLarge:
        raise config_files.broken(str(path), "the file is too large") from None
    except OSError:  # absent, no regular file, or not ours to read
        return None


def _from(path: Path, reader: Reader, project: bool) -> Layer | None:
    data, state = files.read_with_state(path, MAX_SIZE)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise config_files.broken(str(path), "it is not UTF-8 text") from None
    sections = reader(path, text)
    return Layer(path, project, others_cannot_write(state, project), sections) if sections else None
