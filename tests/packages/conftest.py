"""The wheel, built once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .sealed import ROOT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy, so that the checkout stays clean."""
    pytest.importorskip("setuptools")
    copy = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for folder in ("analyzer", "rules", "reports"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    out = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-2000:] + built.stdout[-2000:]
    return next(out.glob("*.whl"))
