"""``--history`` and ``--no-history``: which history a run asks, and whether it is told."""

from __future__ import annotations

from typing import Any

import click

from nccl_triage.cli import language
from nccl_triage.history import place
from nccl_triage.history.memory import Memory


class HistoryFile(click.Path):
    """A file, or the word that says: none."""

    words = (place.OFF,)


def file_option(function: Any) -> Any:
    """Add ``--history``."""
    return click.option(
        "--history",
        metavar="FILE|off",
        type=HistoryFile(dir_okay=True),
        help="Database of earlier diagnoses; without it: nccl-triage/history.sqlite below $XDG_STATE_HOME or "
        "~/.local/state.",
    )(function)


def history_options(function: Any) -> Any:
    """Add ``--history`` and ``--no-history``."""
    off = click.option(
        "--no-history", is_flag=True, is_eager=True, help="Neither ask the history of earlier diagnoses nor keep this one."
    )
    return file_option(off(function))


def memory(history: str | None, no_history: bool, quiet: bool, redact: bool) -> Memory:
    """Return the history as a run is to use it; one whose result is redacted leaves nothing behind."""
    tell = _nothing if quiet else language.say
    return Memory(None if no_history else place.chosen(history), tell, writes=not redact)


def _nothing(template: str, **values: object) -> None:
    """Tell nobody."""
