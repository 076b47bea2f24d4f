"""The user's configuration: ``nccl-triage/config.yaml`` below ``$XDG_CONFIG_HOME`` (``~/.config``).

Keys: ``model``, a model file of ``nccl-triage model train`` (a relative path counts from the file's folder), and
``rules``, a list of folders with further rules. Options of the command line go first; a broken file is a usage error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nccl_triage.errors import UsageError

KEYS = ("model", "rules")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the configuration file says; empty without a file."""

    model: Path | None = None
    rules: tuple[Path, ...] = ()


def path() -> Path:
    """Return where the configuration file would lie."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "nccl-triage" / "config.yaml"


def read() -> Configuration:
    """Return the configuration; raises UsageError when the file cannot be understood."""
    try:
        file = path()
        text = file.read_text("utf-8")
    except (OSError, RuntimeError):  # no file, not ours to read, or no home at all
        return Configuration()
    except UnicodeDecodeError:
        raise _fail(file, "it is no UTF-8 text") from None
    import yaml

    try:
        raw: Any = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise _fail(file, str(error).replace("\n", " ")) from None
    if not isinstance(raw, dict) or set(raw) - set(KEYS):
        raise _fail(file, f"it may hold the keys {', '.join(KEYS)} and nothing else")
    model, rules = raw.get("model"), raw.get("rules") or []
    if not (model is None or isinstance(model, str)) or not isinstance(rules, list):
        raise _fail(file, "model is one path, rules is a list of folders")
    folder = file.parent
    return Configuration(
        model=folder / Path(model).expanduser() if model else None,
        rules=tuple(folder / Path(str(rule)).expanduser() for rule in rules),
    )


def _fail(file: Path, why: str) -> UsageError:
    return UsageError(f"{file} is not a valid configuration", cause=why, remedy="correct or remove it")
