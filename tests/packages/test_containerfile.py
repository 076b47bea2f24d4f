"""What can be said of the image without a container engine: its instructions, and that what they run works."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from nccl_triage._version import __version__

from . import sealed

FILE = sealed.ROOT / "docs" / "integrations" / "container" / "Containerfile"
#: One worker builds the wheel.
pytestmark = pytest.mark.xdist_group("wheel")


def instructions() -> list[tuple[str, str]]:
    text = "\n".join(line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    lines = filter(None, text.replace("\\\n", " ").splitlines())
    return [(name, words.strip()) for name, _, words in (line.partition(" ") for line in lines)]


def only(name: str) -> str:
    (found,) = [words for known, words in instructions() if known == name]
    return found


def test_it_starts_the_program_as_no_root_with_a_supported_python() -> None:
    assert [name for name, _ in instructions()] == ["FROM", "RUN", "USER", "ENV", "WORKDIR", "ENTRYPOINT"]
    version = only("FROM").rpartition("python:")[2].removesuffix("-slim")
    assert f"Programming Language :: Python :: {version}" in (sealed.ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert int(only("USER")) > 0
    assert json.loads(only("ENTRYPOINT")) == ["nccl-triage"]


def test_what_it_installs_runs(wheel: Path, tmp_path: Path) -> None:
    mount, *command = shlex.split(only("RUN"))
    options = dict(part.split("=", 1) for part in mount.partition("=")[2].split(","))
    assert options == {"type": "bind", "source": "dist", "target": "/dist"}
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=sealed.PATIENCE)
    # What it depends on is taken from here, since tests ask no registry.
    paths = [path for path in sys.path if path.endswith("site-packages")]
    library = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    (library / "here.pth").write_text("\n".join(paths), encoding="utf-8")
    install = " ".join(command).replace("/dist/", f"{wheel.parent}/").replace("pip ", f"{environment}/bin/pip ", 1)
    done = sealed.run("sh", "-c", f"{install} --no-index --ignore-installed --no-deps", temporary=tmp_path)
    assert done.returncode == 0, done.stderr
    program = environment / "bin" / json.loads(only("ENTRYPOINT"))[0]
    assert sealed.run(program, "--version", temporary=tmp_path).stdout.split()[-1] == __version__
    variables = dict([only("ENV").split("=")])
    verdict = sealed.run(program, sealed.LOG, temporary=tmp_path, **variables)
    assert sealed.CAUSE in verdict.stdout and verdict.stderr == ""
