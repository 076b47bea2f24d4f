"""Options about the history: which file a run reads and writes, and which incidents a command of ``history`` selects."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage.cli import completion, language
from nccl_triage.errors import HistoryError, UsageError
from nccl_triage.history import place
from nccl_triage.history.memory import Memory
from nccl_triage.lazy_regex import lazily

if TYPE_CHECKING:
    from nccl_triage.history.incidents import KeptIncident

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_AGO = lazily(r"(?P<number>[0-9]{1,6}(?:\.[0-9]{1,3})?)(?P<unit>[mhdw])")


def _moment(ctx: click.Context, param: click.Parameter, value: Any) -> float | None:
    """Return a time in seconds of the epoch: so long ago, or a date, with ``hh:mm:ss`` or not (a callback of click)."""
    if value is None:
        return None
    from nccl_triage.parsers import times

    text = str(value).strip()
    ago = _AGO.fullmatch(text)
    if ago:
        return time.time() - float(ago["number"]) * _UNITS[ago["unit"]]
    day, _, clock = text.replace("T", " ").partition(" ")
    found = times.from_stamp(f"{day} {clock or '00:00:00'}")
    if found is None:
        raise click.BadParameter(language.text("a time is 14d, 36h or a date such as 2026-11-01"), ctx, param)
    return found


def since_option(default: str | None = None, name: str = "--since", help: str = "") -> Callable[[Any], Any]:
    """Return ``--since``."""
    shown = help or "Only what happened since then: 36h, 14d, 2w, or a date."
    return click.option(
        name, metavar="TIME", callback=_moment, default=default, show_default=default is not None, help=shown
    )


def host_option(function: Any) -> Any:
    """Add ``--host``."""
    return click.option("--host", metavar="NAME", help="Only incidents of jobs that ran on this host.")(function)


def cause_option(function: Any) -> Any:
    """Add ``--cause``; its variable would be the one that tells the command of ``--on-verdict`` the cause."""
    return click.option(
        "--cause", "causes", metavar="CAUSE", multiple=True, is_eager=True,
        shell_complete=completion.causes,
        help="Only incidents of this cause (repeatable).",
    )(function)  # fmt: skip


def told(history: str | None, since: float | None) -> tuple[Path, list[KeptIncident]]:
    """Return the path of the history and its incidents since a time."""
    path, store = opened(history)
    with store as kept:
        return path, kept.incidents(since) if kept is not None else []


def span(since: float | None) -> float | None:
    """Return how many days ago a time is."""
    return None if since is None else round((time.time() - since) / 86400.0, 1)


if TYPE_CHECKING:
    from nccl_triage.history.store import Store

#: Seconds that a command of ``history`` waits for other writers.
LOCK_TIMEOUT = 10.0


class HistoryFile(click.Path):
    """A path, or the word ``none``."""

    words = (place.OFF,)


def file_option(function: Any) -> Any:
    """Add ``--history``."""
    return click.option(
        "--history",
        metavar="FILE|off",
        type=HistoryFile(dir_okay=True),
        help="Database of earlier diagnoses (default: nccl-triage/history.sqlite in $XDG_STATE_HOME or "
        "~/.local/state).",
    )(function)


def history_options(function: Any) -> Any:
    """Add ``--history``, ``--no-history`` and ``--job``."""
    name = click.option(
        "--job",
        "job_name",
        metavar="NAME",
        help="What the job is called in the history; without it the paths of its logs and its command tell.",
    )
    off = click.option(
        "--no-history",
        is_flag=True,
        is_eager=True,
        help="Neither look up earlier diagnoses nor record this one.",
    )
    return file_option(off(name(function)))


def memory(history: str | None, no_history: bool, quiet: bool, redact: bool, job: str | None = None) -> Memory:
    """Return the history of a run; a redacted run stores nothing."""
    tell = _nothing if quiet else language.say
    return Memory(None if no_history else place.chosen(history), tell, writes=not redact, job=job)


def _nothing(template: str, **values: object) -> None:
    """Discard a note."""


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
            "there is no home folder for the history", remedy="name a file: --history FILE, or {name}",
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
