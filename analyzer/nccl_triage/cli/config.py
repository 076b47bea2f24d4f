"""``nccl-triage config allow|deny|list``: which configuration files of projects count."""

from __future__ import annotations

from pathlib import Path

import click

from nccl_triage.cli import completion, configuration, consent, language
from nccl_triage.errors import UsageError

_PATHS = click.argument("paths", nargs=-1, type=click.Path(path_type=Path), shell_complete=completion.files)


@click.group("config")
def command() -> None:
    """Allow or deny configuration files of projects.

    A file that was merely found in or above the current folder counts once you have allowed what it says.
    """


@command.command("allow", epilog="\b\nExamples:\n  nccl-triage config allow\n  nccl-triage config allow pyproject.toml")
@_PATHS
def allow(paths: tuple[Path, ...]) -> None:
    """Let configuration files count, as they are now.

    PATHS are such files, or folders from which on they are looked for; without one the current folder. When a file
    changes, or the rules or the model that it names, it is ignored until it is allowed again.
    """
    layers = [configuration.named(one) for path in paths or (Path(),) for one in _files(path)]
    for layer in layers:
        consent.say(layer.path, consent.digest(layer))
        _say_allowed(layer.path)
        for words, entries in layer.sections.items():
            for key, entry in entries.items():
                value = ", ".join(entry.value) if isinstance(entry.value, list) else entry.value
                click.echo(language.harmless(f"  {'.'.join([*words, key])}: {value}"))


@command.command("deny", epilog="\b\nExample:\n  nccl-triage config deny ~/downloads/job/.nccl-triage.yaml")
@_PATHS
def deny(paths: tuple[Path, ...]) -> None:
    """Let configuration files never count, whatever they come to say, and say no more of them.

    PATHS are such files, or folders from which on they are looked for; without one the current folder.
    """
    for path in paths or (Path(),):
        for one in _files(path):
            consent.say(one, denied=True)
            _say_denied(one)


@command.command("list", epilog="\b\nExample:\n  nccl-triage config list")
def list_() -> None:
    """List the files that were allowed or denied."""
    for one in consent.every():
        (_say_denied if one.denied else _say_allowed)(one.path)


def _say_allowed(path: Path | str) -> None:
    click.echo(language.harmless(language.text("allowed: {path}", path=path)))


def _say_denied(path: Path | str) -> None:
    click.echo(language.harmless(language.text("denied: {path}", path=path)))


def _files(path: Path) -> list[Path]:
    """Return the file, or the files that would count from a folder on; raises UsageError for none."""
    path = path.absolute()
    if not path.is_dir():
        return [path]
    found = [one for one, _ in configuration.found(path)]
    if not found:
        raise UsageError("{path} has no configuration of nccl-triage", path=path)
    return found
