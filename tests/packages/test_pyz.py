"""The archive of everything in one file runs where there is no network, no home and no room for trust."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from nccl_triage._version import __version__

from . import sealed

pytest.importorskip("shiv")
#: One worker packs the archive.
pytestmark = pytest.mark.xdist_group("wheel")
PACKAGES = ("click", "jinja2", "markupsafe", "orjson", "PyYAML", "regex", "zstandard")
OPTIONAL = ("hyperscan", "isal", "stringzilla")


def copy_distribution(name: str, site: Path) -> None:
    """Copy an installed package, so that no registry is asked."""
    for file in importlib.metadata.distribution(name).files or ():
        source = Path(str(file.locate()))
        if not file.parts[0].startswith("..") and source.suffix != ".pyc" and source.is_file():
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            data = source.read_bytes()
            target.write_bytes(build().without_symbols(data) if source.suffix == ".so" else data)


def build() -> Any:
    """Return the module that makes the archive."""
    from docs.pyz import build as module

    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the wheels for this Python fill it."""
    folder = tmp_path_factory.mktemp("site")
    for name in (*PACKAGES, *OPTIONAL):
        try:
            copy_distribution(name, folder)
        except importlib.metadata.PackageNotFoundError:
            assert name in OPTIONAL
    ignored = shutil.ignore_patterns("__pycache__", "examples", "out")
    shutil.copytree(sealed.ROOT / "analyzer" / "nccl_triage", folder / "nccl_triage", ignore=ignored)
    for data in ("rules", "reports"):
        shutil.copytree(sealed.ROOT / data, folder / "nccl_triage" / data, ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def pyz(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target: Path = tmp_path_factory.mktemp("dist") / "nccl-triage.pyz"
    build().pack(site, target)
    return target


@pytest.fixture(scope="module")
def temporary(pyz: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary files of a container in which the archive ran once."""
    folder = tmp_path_factory.mktemp("tmp")
    result = sealed.run(sys.executable, pyz, sealed.LOG, temporary=folder)
    assert sealed.CAUSE in result.stdout, result.stderr
    return folder


def unpacked(temporary: Path) -> Path:
    (found,) = (temporary / f"nccl-triage-{os.geteuid()}" / "pyz").glob("*/*/site-packages")
    return found


def test_it_starts_in_less_than_half_a_second(pyz: Path, temporary: Path) -> None:
    for words in (["--version"], [sealed.LOG]):
        assert sealed.spent(sys.executable, pyz, *words, temporary=temporary) < 0.5, words


def test_it_has_all_that_the_wheel_has(pyz: Path, temporary: Path) -> None:
    report = temporary / "report.html"
    result = sealed.run(
        sys.executable, pyz, sealed.LOG, "--verify", "never", "--report", report, "--force", temporary=temporary
    )
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>"), result.stderr
    plan = sealed.run(sys.executable, pyz, "verify", sealed.LOG, "--dry-run", temporary=temporary)
    assert "plan: nothing has been run" in plan.stdout, plan.stderr


def test_its_processes_find_their_python_without_a_path(pyz: Path, temporary: Path) -> None:
    # As in an epilog, where the kernel starts the archive and Python does not know where it is itself.
    start = f'unset PATH; exec -a python3 {sys.executable} "$@"'
    told = sealed.run("bash", "-c", start, "bash", "-c", "import sys; print(sys.executable)", temporary=temporary)
    assert told.stdout == "\n"
    host = sealed.run("bash", "-c", start, "bash", pyz, "doctor", "--format", "json", temporary=temporary)
    assert json.loads(host.stdout)["tool"]["version"] == __version__, host.stderr


def test_it_changes_nothing_for_the_command_that_it_wraps(pyz: Path, temporary: Path) -> None:
    result = sealed.run(sys.executable, pyz, "run", "--", "env", temporary=temporary, PYTHONPATH="/theirs")
    variables = dict(line.split("=", 1) for line in result.stdout.splitlines())
    assert variables["PYTHONPATH"] == "/theirs"
    assert not [name for name in variables if name.startswith("SHIV_")]


def test_broken_packages_of_the_container_do_no_harm(pyz: Path, temporary: Path, tmp_path: Path) -> None:
    for name in ("click", "orjson", "yaml"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('broken')\n", encoding="utf-8")
    result = sealed.run(sys.executable, pyz, sealed.LOG, temporary=temporary, PYTHONPATH=str(tmp_path))
    assert sealed.CAUSE in result.stdout, result.stderr


def test_what_was_cleaned_away_is_unpacked_again(pyz: Path, temporary: Path) -> None:
    gone = [*unpacked(temporary).rglob("rules/causes/*/*.yaml"), *unpacked(temporary).glob("click/*.py")]
    assert len(gone) > 40
    for path in gone:
        path.unlink()
    assert sealed.run(sys.executable, pyz, "--version", temporary=temporary).returncode == 0
    assert all(path.exists() for path in gone)


def test_a_folder_that_others_can_change_is_not_used(pyz: Path, tmp_path: Path) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    for folder in (home / ".cache" / "nccl-triage", temporary / f"nccl-triage-{os.geteuid()}"):
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    chosen = tmp_path / "chosen"
    result = sealed.run(sys.executable, pyz, "--version", temporary=temporary, HOME=str(home), SHIV_ROOT=str(chosen))
    assert result.returncode == 0 and list(chosen.glob("*/site-packages"))  # what the user names is the user's affair
    result = sealed.run(sys.executable, pyz, "--version", temporary=temporary, HOME=str(home))
    assert result.returncode == 0, result.stderr
    assert not list(home.rglob("pyz")) and not list(temporary.rglob("pyz"))


def test_without_a_folder_it_says_what_to_do(pyz: Path, tmp_path: Path) -> None:
    result = sealed.run(sys.executable, pyz, "--version", temporary=tmp_path, SHIV_ROOT="/proc/nowhere")
    assert result.returncode == 2
    assert result.stderr.startswith("error: nothing can be unpacked\ncause: ") and "SHIV_ROOT=" in result.stderr


def test_a_full_disk_is_told_and_left_as_it_was(pyz: Path, tmp_path: Path) -> None:
    limited = ("bash", "-c", 'ulimit -f 100; exec "$@"', "bash")  # files of 100 KiB at most
    result = sealed.run(*limited, sys.executable, pyz, "--version", temporary=tmp_path, SHIV_ROOT=str(tmp_path))
    assert result.returncode == 2 and "File too large" in result.stderr
    assert [path.suffix for path in tmp_path.iterdir() if not path.name.startswith(".")] == []


def test_a_python_that_it_has_no_parts_for_is_told(site: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "one.cpython-99-x86_64-linux-gnu.so").write_bytes(b"")
    build().pack(tmp_path / "site", tmp_path / "other.pyz")
    result = sealed.run(sys.executable, tmp_path / "other.pyz", temporary=tmp_path)
    assert result.returncode == 2
    assert "cause: it has those for cpython-99-x86_64-linux-gnu\n" in result.stderr


def test_the_same_packages_give_the_same_archive(site: Path, pyz: Path, tmp_path: Path) -> None:
    build().pack(site, tmp_path / pyz.name)
    assert (tmp_path / pyz.name).read_bytes() == pyz.read_bytes()


def test_the_start_can_be_read_by_old_pythons() -> None:
    import ast

    ast.parse((sealed.ROOT / "docs" / "pyz" / "start.py").read_text(encoding="utf-8"), feature_version=(3, 6))


def test_wheels_that_disagree_are_refused(tmp_path: Path) -> None:
    wheels = []
    for version in ("1", "2"):
        wheels.append(tmp_path / f"one-{version}-py3-none-any.whl")
        with zipfile.ZipFile(wheels[-1], "w") as archive:
            archive.writestr("one.py", version)
    with pytest.raises(ValueError, match=r"one\.py of one-2"):
        build().gather(wheels, tmp_path / "site", "x86_64")


def test_the_interpreter_of_a_version_is_found() -> None:
    from .__main__ import interpreter

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = interpreter(version)
    if found is None:
        pytest.skip(f"no python{version} on PATH")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"Python {version}.")


def test_programs_are_those_of_the_machine_and_only_hang_finds_them(site: Path, tmp_path: Path) -> None:
    machine = os.uname().machine
    wheels = []
    for name in (machine, "other"):
        wheels.append(tmp_path / f"py_spy-1-py3-none-{name}.whl")
        with zipfile.ZipFile(wheels[-1], "w") as archive:
            archive.writestr("py_spy-1.data/scripts/py-spy", f"#!/bin/sh\necho Thread of {name} >&2; exit 1\n")
        build().gather(wheels[-1:], tmp_path / "site", name)
    shutil.copytree(site, tmp_path / "site", dirs_exist_ok=True)
    build().pack(tmp_path / "site", tmp_path / "with.pyz")
    program = (sys.executable, tmp_path / "with.pyz")
    told = sealed.run(*program, "hang", "--pid", str(os.getpid()), temporary=tmp_path, SHIV_ROOT=str(tmp_path / "root"))
    assert f"Thread of {machine}" in told.stdout + told.stderr
    assert [path.parent.name for path in (tmp_path / "root").rglob("programs/*/py-spy")] == [machine]
    shown = sealed.run(*program, "run", "--", "env", temporary=tmp_path, SHIV_ROOT=str(tmp_path / "root")).stdout
    assert "programs" not in shown.partition("PATH=")[2].splitlines()[0]
