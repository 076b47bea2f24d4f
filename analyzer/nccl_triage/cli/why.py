"""``nccl-triage why``: the decisions behind a verdict, or the way of one line of a log."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nccl_triage.cli import completion, options
from nccl_triage.errors import UsageError


@click.command(
    "why",
    epilog="""\b
Examples:
  nccl-triage why logs/trainer.log
  nccl-triage why logs/trainer.log:812
  nccl-triage why run_dir/ run_dir/rank3.log:88
  kubectl logs trainer-0 | nccl-triage why -
  nccl-triage why logs/trainer.log --format json""",
)
@click.argument("logs", metavar="LOG[:LINE]", nargs=-1, shell_complete=completion.files)
@options.format_option
@options.rules_options
@options.model_option
@options.language_option
@options.debug_option
def command(
    logs: tuple[str, ...], chosen: str, rules_dirs: tuple[Path, ...], model_name: str | None, lang: str, debug: bool
) -> None:
    """Say why the verdict is what it is, decision by decision, or what became of one line.

    LOG is a file, folder or glob, or - for standard input; several make one job. LOG:LINE asks about a line of a file,
    counted from 1. Each decision names its rule, the lines and numbers that decided, and what would have decided otherwise.
    """
    if not logs and not sys.stdin.isatty():
        logs = ("-",)
    if not logs:
        raise UsageError("nothing to explain", remedy="nccl-triage why LOG or nccl-triage why LOG:LINE")
    paths, asked = split_line(logs)
    from nccl_triage.api import diagnose, trace_line

    diagnosis = diagnose(
        paths,
        rules_dirs=options.all_rules(rules_dirs),
        stdin=sys.stdin.buffer if "-" in paths else None,
        model=options.chosen_model(model_name),
    )
    language, color, width = options.language(lang), options.use_color(), options.width_of()
    if asked is not None:
        found = trace_line(diagnosis, paths, *asked)
        _show(found, chosen, lambda page: page.line(found, color, width, language))
    else:
        document = diagnosis.to_dict(similar=False, traced=True)
        _show(document["trace"], chosen, lambda page: page.chain(document, color, width, language))


def _show(data: dict[str, Any], chosen: str, text: Any) -> None:
    if chosen == "json":
        from nccl_triage.render import json_output

        click.echo(json_output.render(data), nl=False)
        return
    from nccl_triage.render import why

    click.echo(text(why), nl=False)


def split_line(logs: Sequence[str]) -> tuple[list[str], tuple[str, int] | None]:
    """Return the logs to be read, and path and number of the line that is asked for, if one is.

    Raises UsageError for more than one line.
    """
    paths, lines = [], []
    for log in logs:
        path, _, number = log.rpartition(":")
        if path and number.isascii() and number.isdigit() and len(number) < 12 and not os.path.lexists(log):
            lines.append((path, int(number)))
            if not any(_inside(path, other) for other in logs if other != log):
                paths.append(path)
        else:
            paths.append(log)
    if len(lines) > 1:
        raise UsageError("more than one line is asked for", remedy="ask for one line at a time")
    return paths, lines[0] if lines else None


def _inside(path: str, other: str) -> bool:
    """Tell whether another argument reads a file already: the file itself, or a folder that holds it."""
    here, there = Path(path).absolute(), Path(other).absolute()
    return here == there or there in here.parents
