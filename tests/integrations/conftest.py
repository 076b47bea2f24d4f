"""What the recipes find on PATH: nccl-triage itself, and stand-ins for programs of a cluster."""

from __future__ import annotations

import os
import re
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


#: What makes a process a rank of a job.
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


class Job:
    """A folder in which scripts are run."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        path = os.pathsep.join((str(ROOT / "analyzer"), os.environ.get("PYTHONPATH", "")))
        own = {name: value for name, value in os.environ.items() if name not in RANK_VARIABLES}
        self.env = {**own, "LC_ALL": "C.UTF-8", "PYTHONPATH": path, "XDG_CACHE_HOME": str(cache)}

    def start(self, script: str, *words: str, **env: str) -> subprocess.Popen[str]:
        path = self.folder / "train.py"
        if not path.exists() or path.read_text(encoding="utf-8") != script:  # another rank may be reading it
            path.write_text(script, encoding="utf-8")
        return subprocess.Popen(
            [*(words or [sys.executable]), str(path)], cwd=self.folder, env={**self.env, **env}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, script: str, *words: str, **env: str) -> tuple[int, str]:
        """Run a script; return its exit code and what it wrote on standard error."""
        process = self.start(script, *words, **env)
        stderr = process.communicate(timeout=PATIENCE)[1]
        return process.returncode, stderr

    def names(self) -> set[str]:
        """Return the names of the files in the folder of logs, without the host's."""
        host = re.escape(os.uname().nodename)
        return {re.sub(host, "HOST", path.name) for path in self.logs.glob("*")}

    def text(self, name: str) -> str:
        return (self.logs / name.replace("HOST", os.uname().nodename)).read_text(encoding="utf-8")


@pytest.fixture
def job(tmp_path: Path, cache: Path) -> Job:
    return Job(tmp_path, cache)
