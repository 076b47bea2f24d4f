"""Pack the worker into one file that any Python with torch can run, wherever it lies."""

from __future__ import annotations

import importlib.resources
import zipfile
from pathlib import Path

from nccl_triage import archives

#: Name of the package inside the file.
PACKAGE = "nccl_triage_worker"
_MAIN = f"import sys\nfrom {PACKAGE}.__main__ import main\nsys.exit(main())\n"


def write(path: Path) -> Path:
    """Write the worker's zip application; returns its path."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archives.add_text(archive, "__main__.py", _MAIN)
        archives.add_sources(archive, importlib.resources.files("nccl_triage.verify.worker"), PACKAGE)
    path.chmod(0o600)
    return path
