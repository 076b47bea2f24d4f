"""Where the packaged data lies: rules, report templates, schemas and the model.

In an installed distribution the folders are ``nccl_triage/rules`` and ``nccl_triage/reports``; in a checkout
they are ``rules/`` and ``reports/`` at the top level (setup.cfg maps them). Only this module knows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.abc import Traversable


def _package() -> Traversable:
    here = Path(__file__).resolve().parent
    if here.is_dir():
        return here
    import importlib.resources  # slow to import, and needed where we are read from an archive

    return importlib.resources.files("nccl_triage")


def _folder(name: str) -> Traversable:
    packaged = _package() / name
    if packaged.is_dir():
        return packaged
    return Path(__file__).resolve().parents[2] / name


def rules_dir() -> Traversable:
    """Return the folder that holds ``signatures/``, ``causes/`` and ``schema/``."""
    return _folder("rules")


def reports_dir() -> Traversable:
    """Return the folder that holds ``templates/`` and ``schema/``."""
    return _folder("reports")


def model_file() -> Traversable:
    """Return the shipped model; it may be missing in a checkout where ``make model`` never ran."""
    return _package() / "classifier" / "model.json"


def form_file() -> Traversable:
    """Return the shipped models of form and place; they may be missing like the model."""
    return _package() / "learned" / "form.json"


def examples_file() -> Traversable:
    """Return what the shipped model learnt from, as features: users' own incidents are added to it."""
    return _package() / "classifier" / "examples.json.gz"


def threads_file() -> Traversable:
    """Return the index of public threads that similar incidents are looked up in."""
    return _package() / "similar" / "threads.json.gz"


def completion_script(shell: str) -> Traversable:
    """Return the script that lets a shell complete our command line."""
    return _package() / "cli" / f"completion.{shell}"


def sources(folder: str) -> Iterator[str]:
    """Yield the source of the modules below a folder of the package; nothing where only compiled ones are shipped."""
    waiting = [_package() / folder]
    while waiting:
        for entry in waiting.pop().iterdir():
            if entry.is_dir():
                waiting.append(entry)
            elif entry.name.endswith(".py"):
                yield entry.read_text(encoding="utf-8")


def messages_dir() -> Traversable:
    """Return the folder of the translated texts."""
    return _package() / "messages"
