"""``--host-facts``: what ``doctor`` saw of the job's hosts, weighed beside the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nccl_triage.errors import UsageError


def option(function: Any) -> Any:
    """Add ``--host-facts`` (repeatable)."""
    return click.option(
        "--host-facts",
        "facts",
        multiple=True,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Weigh what doctor saw of the job's hosts, too: its JSON, one host or many (repeatable).",
    )(function)


def beside(paths: Sequence[str], facts: Sequence[Path]) -> tuple[str, ...]:
    """Return the paths with the files of facts behind them.

    Raises UsageError for a file that cannot be read or that holds something else.
    """
    from nccl_triage.ingest import sniff
    from nccl_triage.ingest.layouts import strip_compression
    from nccl_triage.tool_reports import recognise

    for path in facts:
        try:
            _, sample, _ = sniff.head(path)
        except OSError as error:
            raise UsageError("cannot read {path}", cause="{why}", path=path, why=error.strerror or error) from None
        form = recognise(strip_compression(path.name), sample)
        if form is None or form.name != "doctor":
            raise UsageError(
                "{path} holds no facts of hosts",
                remedy="make it with: nccl-triage doctor --format json -o {path}",
                path=path,
            )
    return (*paths, *map(str, facts))
