"""The worker in one file: the same bytes, complete, and free of its surroundings."""

from __future__ import annotations

import ast
import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import nccl_triage
from nccl_triage.hosts import programs
from nccl_triage.verify.cluster import worker
from tests.verify.worker_file import worker_file

ROOT = Path(nccl_triage.__file__).parent
MODULES = sorted(
    [*(ROOT / "verify/worker").glob("*.py"), *(ROOT / "hosts/probes").glob("*.py"), *(ROOT / "hosts").glob("*gent.py")]
)


def test_the_same_sources_give_the_same_bytes() -> None:
    again = programs.archive("nccl_triage.verify.worker.__main__", "verify/worker")
    assert again == worker().archive


def test_every_module_is_in_it_with_the_packages_above() -> None:
    with zipfile.ZipFile(io.BytesIO(worker().archive)) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
        for module in MODULES:
            assert archive.read(str(module.relative_to(ROOT.parent))) == module.read_bytes()
    assert len(set(names)) == len(names)
    above = {f"nccl_triage/{name}" for name in ("__init__.py", "_version.py", "verify/__init__.py")}
    assert {name for name in names if not name.startswith(("nccl_triage/hosts/", "nccl_triage/verify/worker/"))} == {
        "__main__.py",
        *above,
    }


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_that_runs_on_a_host_needs_the_standard_library_and_torch_only(module: Path) -> None:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            inside = str(node.module).startswith("nccl_triage.hosts.probes")
            names = set() if inside else {str(node.module).split(".")[0]}
        else:
            continue
        # pynvml is taken where it can be imported, else nvidia-smi tells the same.
        own = {"torch", "pynvml"} if module.stem == "nvml" else {"torch"}
        assert names <= {*sys.stdlib_module_names, *own}, f"{module.name}:{node.lineno}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_torch_is_imported_where_it_is_used_and_nowhere_else(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    named = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    assert not any(name.split(".")[0] == "torch" for name in named)


def test_it_runs_in_an_interpreter_that_has_nothing(tmp_path: Path) -> None:
    path = worker_file(tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(path), "agent"],
        input=b'{"do": "facts"}\n{"do": "preload"}\n',
        capture_output=True,
        timeout=60,
        cwd=tmp_path,
        env={},
    )
    told = {answer["answer"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert told["facts"]["facts"]["torch"] is None
    assert "torch" in told["preload"]["error"]
    assert (done.returncode, done.stderr) == (0, b"")
    assert [entry.name for entry in tmp_path.iterdir()] == ["worker.pyz"], "no __pycache__ either"


@pytest.mark.parametrize("words", [[], ["help"], ["agents"]])
def test_an_unknown_part_says_how_to_call_it(words: list[str], tmp_path: Path) -> None:
    path = worker_file(tmp_path)
    done = subprocess.run([sys.executable, "-S", str(path), *words], capture_output=True, timeout=60)
    assert done.returncode == 2 and done.stderr.startswith(b"usage:") and done.stdout == b""


def test_a_python_that_is_too_old_says_so() -> None:
    """Any older ones that are here, of pyenv or of the system."""
    names = [f"python{version}" for version in ("2.7", "3.6", "3.7", "3.8", "3.9")]
    here = Path.home().glob(".pyenv/versions/[23].[6-9].*/bin/python")
    old = [*filter(None, map(shutil.which, names)), *map(str, here)]
    working = [
        path for path in old if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
    ]
    if not working:
        pytest.skip("no Python before 3.10 is here")
    for path in working:
        told = subprocess.run([path, "-c", programs.BOOT], input=b"1\nx", capture_output=True, check=False)
        assert told.returncode == 1
        assert re.fullmatch(rb"Python [23]\.\d is too old: 3\.10 or later is needed\n", told.stderr), told.stderr
