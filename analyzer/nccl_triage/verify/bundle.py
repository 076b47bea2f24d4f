"""Pack the worker into one file that any Python with torch can run, wherever it lies."""

from __future__ import annotations

import importlib.resources
import zipfile
from pathlib import Path

#: Name of the package inside the file.
PACKAGE = "nccl_triage_worker"
_MAIN = f"import sys\nfrom {PACKAGE}.__main__ import main\nsys.exit(main())\n"
#: The same sources give the same bytes.
_DATE = (2020, 1, 1, 0, 0, 0)


def write(path: Path) -> Path:
    """Write the worker's zip application; returns its path."""
    source = importlib.resources.files("nccl_triage.verify.worker")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _DATE), _MAIN, zipfile.ZIP_DEFLATED)
        for entry in sorted(source.iterdir(), key=lambda item: item.name):
            if entry.name.endswith(".py"):
                archive.writestr(
                    zipfile.ZipInfo(f"{PACKAGE}/{entry.name}", _DATE), entry.read_bytes(), zipfile.ZIP_DEFLATED
                )
    path.chmod(0o600)
    return path
