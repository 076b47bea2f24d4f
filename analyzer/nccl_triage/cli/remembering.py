"""``--history`` and ``--no-history``: which history a run asks, whether it is told, and how commands open it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage.cli import language
from nccl_triage.errors import HistoryError, UsageError
from nccl_triage.history import place
from nccl_triage.history.memory import Memory

if TYPE_CHECKING:
    from nccl_triage.history.store import Store

#: Seconds that a command of the history waits for others that write.
LOCK_TIMEOUT = 10.0


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
        "--no-history",
        is_flag=True,
        is_eager=True,
        help="Neither ask the history of earlier diagnoses nor keep this one.",
    )
    return file_option(off(function))


def memory(history: str | None, no_history: bool, quiet: bool, redact: bool) -> Memory:
    """Return the history as a run is to use it; one whose result is redacted leaves nothing behind."""
    tell = _nothing if quiet else language.say
    return Memory(None if no_history else place.chosen(history), tell, writes=not redact)


def _nothing(template: str, **values: object) -> None:
    """Tell nobody."""


def located(history: str | None) -> Path:
    """Return where the history lies; raises UsageError where there is none."""
    if place.off(history):
        raise UsageError(
            "there is no history: it is switched off",
            remedy="name its file: --history FILE, or {name}",
            name=place.VARIABLE,
        )
    path = place.chosen(history)
    if path is None:
        raise UsageError(
            "there is no home folder to keep a history in", remedy="name a file: --history FILE, or {name}",
            name=place.VARIABLE,
        )  # fmt: skip
    return path


def opened(history: str | None) -> tuple[Path, AbstractContextManager[Store | None]]:
    """Return where the history lies and the open history, None where nothing was kept yet; raises HistoryError."""
    from nccl_triage.history import store

    path = located(history)
    if store.collect_waiting(path):
        with suppress(HistoryError), store.writable(path, LOCK_TIMEOUT) as busy:
            busy.take_in()
    found = store.readable(path, LOCK_TIMEOUT)
    return path, nullcontext() if found is None else found
