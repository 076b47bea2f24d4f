"""Options that the commands of ``history`` share, and the incidents that they choose."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage.cli import candidates, language, remembering

if TYPE_CHECKING:
    from nccl_triage.history.model import KeptIncident

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_AGO = re.compile(r"(?P<number>[0-9]{1,6}(?:\.[0-9]{1,3})?)(?P<unit>[mhdw])")


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
    shown = help or "Only what happened from then on: 36h, 14d, 2w, or a date."
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
        shell_complete=candidates.causes,
        help="Only incidents of this cause (repeatable).",
    )(function)  # fmt: skip


def told(history: str | None, since: float | None) -> tuple[Path, list[KeptIncident]]:
    """Return where the history lies, and its incidents from a time on."""
    path, opened = remembering.opened(history)
    with opened as kept:
        return path, kept.incidents(since) if kept is not None else []


def span(since: float | None) -> float | None:
    """Return how many days a time is ago."""
    return None if since is None else round((time.time() - since) / 86400.0, 1)
