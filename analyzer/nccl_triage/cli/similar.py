"""``nccl-triage similar``: public threads about failures that look like that of a log, or like a message."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage.cli import completion, options
from nccl_triage.errors import InputError, UsageError

if TYPE_CHECKING:
    from nccl_triage.document.diagnosis import Diagnosis

#: Characters of a message that are read.
_MAX_TEXT = 1 << 20


@click.command(
    "similar",
    epilog="""\b
Examples:
  nccl-triage similar logs/trainer.log
  nccl-triage similar report.json
  nccl-triage similar "Bootstrap : no socket interface found"
  kubectl logs trainer-0 | nccl-triage similar -""",
)
@click.argument("words", metavar="LOG|TEXT", nargs=-1, shell_complete=completion.words)
@options.format_option
@options.rules_options
@options.model_option
@options.language_option
@options.debug_option
def command(
    words: tuple[str, ...], chosen: str, rules_dirs: tuple[Path, ...], model_name: str | None, lang: str, debug: bool
) -> None:
    """Find public threads about failures that look like yours, with what the cause was.

    LOG is a file, folder or glob (several make one job), - for standard input, or a saved report.json; anything else is
    the TEXT of a message. The threads come with nccl-triage: nothing is sent anywhere. Where none is alike, none is shown.
    """
    if not words:
        raise UsageError("nothing to compare", remedy="nccl-triage similar LOG")
    found = _saved(words[0], rules_dirs) if len(words) == 1 else None
    if found is None:
        found = _diagnosis(words, rules_dirs, model_name).to_dict()
    document = {key: value for key, value in found.items() if key in _KEYS}
    if chosen == "json":
        from nccl_triage.render import json_output

        click.echo(json_output.render({**document, "similar": document.get("similar", [])}), nl=False)
        return
    from nccl_triage.render import similar

    click.echo(similar.text(document, options.language(lang), options.use_color(), options.width_of()), nl=False)


def _saved(word: str, rules_dirs: tuple[Path, ...]) -> dict[str, Any] | None:
    """Return a saved report with its threads, looked up where it has none; None for anything else; raises InputError."""
    from nccl_triage.cli.render import read_if_report

    path = Path(word)
    found = read_if_report(path) if word.endswith(".json") and path.is_file() else None
    if found is None or "similar" in found:
        return found
    from nccl_triage.engine import load
    from nccl_triage.similar import of_document

    return {**found, "similar": of_document.similar(found, load.load(rules_dirs))}


#: What the JSON output has of a report, beside the threads.
_KEYS = ("schema_version", "tool", "verdict", "similar")


def _diagnosis(words: tuple[str, ...], rules_dirs: tuple[Path, ...], model_name: str | None) -> Diagnosis:
    """Return the diagnosis of the logs, or of a text as a log of its own."""
    from nccl_triage.api import diagnose

    paths = all(word == "-" or os.path.lexists(word) or _matches(word) for word in words)
    settings: dict[str, Any] = {"rules_dirs": rules_dirs, "model": options.chosen_model(model_name)}
    if paths:
        return diagnose(words, stdin=sys.stdin.buffer if "-" in words else None, **settings)
    if len(words) == 1 and " " not in words[0] and ("/" in words[0] or words[0].endswith((".log", ".txt", ".out"))):
        raise InputError("cannot read {path}", path=words[0], cause="there is no such file")
    text = " ".join(words)[:_MAX_TEXT]
    return diagnose(["-"], stdin=io.BytesIO(f"{text}\n".encode("utf-8", "replace")), **settings)


def _matches(word: str) -> bool:
    """Tell whether a word is a pattern of files that exist; a message may hold brackets, too."""
    import glob

    return glob.has_magic(word) and bool(glob.glob(word))  # noqa: PTH207 - takes absolute patterns
