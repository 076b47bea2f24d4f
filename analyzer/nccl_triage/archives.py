"""Put Python sources into a zip that another machine runs or imports."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable

#: The same sources give the same bytes.
_DATE = (2020, 1, 1, 0, 0, 0)


def add_text(archive: zipfile.ZipFile, name: str, text: str | bytes) -> None:
    """Add one file."""
    archive.writestr(zipfile.ZipInfo(name, _DATE), text, zipfile.ZIP_DEFLATED)


def add_sources(archive: zipfile.ZipFile, folder: Traversable, name: str, below: bool = False) -> None:
    """Add the Python files of a folder, and their tables, under ``name``; ``below``: and those of the folders in it."""
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith((".py", ".json")):
            add_text(archive, f"{name}/{entry.name}", entry.read_bytes())
        elif below and entry.is_dir():
            add_sources(archive, entry, f"{name}/{entry.name}", below)
