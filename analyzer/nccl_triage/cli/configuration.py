"""The configuration: which files there are, in which order they count, and what the environment says.

First to last: variables ``NCCL_TRIAGE_<OPTION>``; the file that ``--config`` or its variable names; the user's own,
``nccl-triage/config.yaml`` below ``$XDG_CONFIG_HOME`` (``~/.config``). Nothing is read from where logs lie.

A key is the long name of an option. At the top level it counts for every command that has such an option and takes
the value; in a section named like a command (``verify:``, ``rules:`` with ``list:`` in it) for that command. Here everything is
text, with the place where it stands; ``settings`` makes values of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from nccl_triage import files
from nccl_triage.cli import config_files
from nccl_triage.cli.config_files import ConfigEntry, Layer, others_cannot_write
from nccl_triage.errors import UsageError

PREFIX = "NCCL_TRIAGE_"
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


class Environment(NamedTuple):
    """The variables as a layer: ``NCCL_TRIAGE_BUDGET`` for all commands, ``NCCL_TRIAGE_VERIFY_BUDGET`` for one."""

    path: None = None
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


def layers(chosen: str | None = None) -> list[Layer]:
    """Return the files that count, of which ``chosen`` is the first; raises UsageError for one that cannot be understood."""
    own = user_file()
    found = [named(Path(chosen)) if chosen is not None else None, _own(own) if own is not None else None]
    return [layer for layer in found if layer is not None]


def named(path: Path) -> Layer:
    """Read the file that the user names for this run; raises UsageError where it cannot be read or sets nothing."""
    try:
        layer = _layer(path)
    except OSError as error:
        raise UsageError("cannot read {path}", path=path, cause="{why}", why=error.strerror or error) from None
    if layer is None:
        raise UsageError("{path} has no configuration of nccl-triage", path=path)
    return layer


def _own(path: Path) -> Layer | None:
    """Read a file that may be absent."""
    try:
        return _layer(path)
    except files.TooLarge:
        raise config_files.broken(str(path), "the file is too large") from None
    except OSError:  # absent, no regular file, or not ours to read
        return None


def _layer(path: Path) -> Layer | None:
    data, state = files.read_with_state(path, MAX_SIZE)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise config_files.broken(str(path), "it is not UTF-8 text") from None
    sections = config_files.read_yaml(path, text)
    return Layer(path, others_cannot_write(state), sections) if sections else None
