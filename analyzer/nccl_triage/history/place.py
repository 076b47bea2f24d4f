"""The path of the history: ``--history``, its variable or key, else the user's state folder."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "NCCL_TRIAGE_HISTORY"
#: The word instead of a file that says: none.
OFF = "off"


def state_folder() -> Path | None:
    """Return the user's folder for what we keep, None where the user has no home."""
    base = os.environ.get("XDG_STATE_HOME")
    try:
        state = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return state / "nccl-triage"


def default() -> Path | None:
    """Return the usual place, None where the user has no home."""
    folder = state_folder()
    return folder / "history.sqlite" if folder is not None else None


def off(given: str | None) -> bool:
    """Tell whether the user wants no history; an empty variable says so, too."""
    return given == OFF or (given is None and os.environ.get(VARIABLE) == "")


def chosen(given: str | None) -> Path | None:
    """Return the file that the user names or the usual one; None where there is none."""
    if off(given):
        return None
    return Path(given) if given else default()
