"""Put Python sources into a zip that another machine runs or imports."""

from __future__ import annotations

import importlib.resources
import io
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable

#: The same sources give the same bytes.
_DATE = (2020, 1, 1, 0, 0, 0)


_MAIN = "import sys\nfrom nccl_triage.{package}.collect import main\nsys.exit(main())\n"


def program(package: str) -> bytes:
    """Return an archive that Python runs: ``main`` of a package's ``collect``, with the package and what it uses of others."""
    made = io.BytesIO()
    root = importlib.resources.files("nccl_triage")
    with zipfile.ZipFile(made, "w") as archive:
        add_text(archive, "__main__.py", _MAIN.format(package=package))
        add_sources(archive, root, "nccl_triage")
        add_sources(archive, root / package, f"nccl_triage/{package}", below=True)
        add_sources(archive, root / "verify", "nccl_triage/verify")
        add_sources(archive, root / "verify" / "worker", "nccl_triage/verify/worker")
    return made.getvalue()


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
