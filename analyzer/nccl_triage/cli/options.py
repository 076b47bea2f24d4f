"""Options that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import click

from nccl_triage import files
from nccl_triage.errors import OutputError, UsageError


class ModelPath(click.Path):
    """A path, or a word such as ``none``."""

    words = ("none",)


def rules_options(function: Any) -> Any:
    """Add ``--rules`` (repeatable)."""
    return click.option(
        "--rules",
        "rules_dirs",
        multiple=True,
        type=click.Path(path_type=Path, file_okay=False),
        help="Also use the rules in this folder (repeatable).",
    )(function)


def model_option(function: Any) -> Any:
    """Add ``--model``."""
    return click.option(
        "--model",
        "model_name",
        metavar="FILE|none",
        type=ModelPath(),
        help="Classifier that votes alongside the rules; none uses the rules alone (default: the shipped one).",
    )(function)


def chosen_model(name: str | None) -> Any:
    """Return what ``--model`` chooses: a Model, ``shipped`` or None."""
    if name == "none":
        return None
    if name is None:
        return "shipped"
    from nccl_triage.classifier import model as models

    return models.load(Path(name))


def all_rules(given: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the folders of ``--rules``, each once."""
    return tuple(dict.fromkeys(given))


def format_option(function: Any) -> Any:
    """Add ``--format`` of a command whose result is for people or for programs."""
    return click.option(
        "--format",
        "chosen",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Output format.",
    )(function)


def result_file_options(function: Any) -> Any:
    """Add ``--output`` and ``--force``."""
    function = click.option("--force", is_flag=True, help="Overwrite existing files.")(function)
    return click.option(
        "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write the result to this file."
    )(function)


def language_option(function: Any) -> Any:
    """Add ``--lang``."""
    return click.option(
        "--lang",
        type=click.Choice(["auto", "en", "zh"]),
        default="auto",
        show_default=True,
        help="Language of the text; ids, JSON keys and log lines are never translated.",
    )(function)


def debug_option(function: Any) -> Any:
    """Add ``--debug``."""
    return click.option("--debug", is_flag=True, help="Show a traceback if an error occurs.")(function)


def language(choice: str) -> Literal["en", "zh"]:
    """Return en or zh for ``--lang``; auto asks the locale."""
    from nccl_triage.cli import language as languages

    return languages.resolve(choice)


def use_color(stream: Any = None) -> bool:
    """Tell whether to colour a stream: ``--color`` decides, then NO_COLOR and FORCE_COLOR, then the terminal."""
    from nccl_triage.cli import base

    choice = base.remembered("color", "auto")
    if choice != "auto":
        return bool(choice == "always")
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    target = stream if stream is not None else sys.stdout
    return bool(target.isatty()) and os.environ.get("TERM") != "dumb"


def width_of(stream: Any = None) -> int | None:
    """Return the terminal's width, or None when the stream is none (then nothing is folded)."""
    target = stream if stream is not None else sys.stdout
    if not target.isatty():
        return None
    try:
        return os.get_terminal_size(target.fileno()).columns
    except OSError:
        return 80


def refuse_existing(paths: Iterable[Path | None], force: bool) -> None:
    """Raise UsageError for an existing output before any work is done; ``write_file`` checks again when it writes."""
    for path in paths:
        if path is not None and not force and path.exists() and not _is_sink(path):
            raise UsageError("{path} already exists", remedy="add --force to overwrite it", path=path)


def write_file(path: Path, data: bytes, force: bool) -> None:
    """Write a result atomically; an existing file needs ``--force``.

    Results are there to be shared, and secrets are masked in them: the umask alone decides who may read them.
    """
    try:
        if _is_sink(path):
            path.write_bytes(data)
            return
        if path.exists() and not force:
            raise OutputError("{path} already exists", remedy="add --force to overwrite it", path=path)
        files.replace(path, data)
    except OSError as error:
        raise OutputError("cannot write {path}", cause="{why}", path=path, why=error.strerror or error) from None


def _is_sink(path: Path) -> bool:
    """Tell whether a path is a pipe or a device, which is written to instead of replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()
