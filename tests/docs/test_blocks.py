"""The examples of the pages really run: each page's shell blocks, in order, in a folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Pages whose blocks marked ``sh`` and ``python`` are run; other blocks show, and are not run.
PAGES = (
    "quickstart.md",
    "writing-a-rule.md",
    "sharing.md",
    "configuration.md",
    "following.md",
    "doctor.md",
    "history.md",
)
#: Commands of these pages that change the environment in which they run.
SKIPPED = ("pip install",)
_BLOCK = re.compile(r"^```(sh|python|yaml|toml|ini)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [body for kind, body in _BLOCK.findall(text) if kind == language]


#: What the blocks of a page print: the rule of the tutorial names its cause.
SAYS = {
    "writing-a-rule.md": (
        "root cause: straggler",
        "root cause: acme-feed-down (established, 0.99)",
        "trainer.log:2:",
    )
}


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Return a folder with the corpus, and an environment in which ``nccl-triage`` is this checkout."""
    work, tools = tmp_path / "work", tmp_path / "bin"
    work.mkdir()
    tools.mkdir()
    (work / "corpus").symlink_to(ROOT / "corpus")
    program = tools / "nccl-triage"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nccl_triage "$@"\n')
    program.chmod(0o755)
    (tools / "python").symlink_to(sys.executable)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "analyzer"), "HOME": str(tmp_path),
        "LANG": "C.UTF-8", "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
    }  # fmt: skip
    return work, environment


@pytest.mark.parametrize("page", PAGES)
def test_shell_blocks_run(page: str, place: tuple[Path, dict[str, str]]) -> None:
    work, environment = place
    found = blocks(page, "sh")
    assert found, "a page without a block to run"
    lines = [line for body in found for line in body.splitlines() if not line.startswith(SKIPPED)]
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    assert "error:" not in result.stderr
    for said in SAYS.get(page, ()):
        assert said in result.stdout, said


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_python_blocks_run(page: str, place: tuple[Path, dict[str, str]]) -> None:
    work, environment = place
    for body in blocks(page, "python"):
        result = subprocess.run(
            [sys.executable, "-c", body],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert result.returncode == 0, result.stderr[-2000:]


def test_the_configuration_block_is_understood(place: tuple[Path, dict[str, str]]) -> None:
    work, environment = place
    name = "run.yaml"
    (body,) = blocks("configuration.md", "yaml")
    (work / name).write_text(body)
    (work / "my-rules" / "signatures").mkdir(parents=True)
    result = subprocess.run(
        ["nccl-triage", "verify", "--show-config", "--config", name], cwd=work, env=environment, capture_output=True, text=True, check=False,
        timeout=60, stdin=subprocess.DEVNULL, executable=shutil.which("nccl-triage", path=environment["PATH"]),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert f"{name}:" in result.stdout and "60" in result.stdout
