"""What the recipes find on PATH: nccl-triage itself, and stand-ins for programs of a cluster."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "integrations"
#: Seconds after which a command counts as hanging.
PATIENCE = 120.0


def program(name: str) -> str:
    """Return the path of a program, best that beside this Python; skips the test where there is none."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


class Commands:
    """A folder of commands that comes first on PATH."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        folder.mkdir()
        path = os.pathsep.join((str(ROOT / "analyzer"), os.environ.get("PYTHONPATH", "")))
        # Not left to the environment: an epilog has none.
        variables = f"PYTHONPATH={shlex.quote(path)} XDG_CACHE_HOME={shlex.quote(str(cache))}"
        python = f"{variables} exec {shlex.quote(sys.executable)}"
        self.add("nccl-triage", f'{python} -m nccl_triage "$@"')
        self.add("python", f'{python} "$@"')  # that of the tests, even when its environment is not activated
        self.env = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": path,
        }

    def add(self, name: str, script: str) -> Path:
        """Put a Bash script under a name; returns its path."""
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def run(
        self,
        *words: str | Path,
        stdin: str = "",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [str(word) for word in words], input=stdin, cwd=cwd or self.folder, env={**self.env, **(env or {})},
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where nccl-triage keeps its compiled rules, once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def commands(tmp_path: Path, cache: Path) -> Commands:
    """Commands in front of those of the system."""
    return Commands(tmp_path / "bin", cache)
