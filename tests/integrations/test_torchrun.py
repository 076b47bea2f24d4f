"""``nccl-triage run -- torchrun``, with the installed PyTorch."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from .conftest import EXAMPLES, Commands, program
from .pages import block

PAGE = (EXAMPLES / "torchrun.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture
def folder(commands: Commands, tmp_path: Path) -> Path:
    """A folder with the example in it."""
    commands.add("torchrun", f'exec {program("torchrun")} "$@"')
    shutil.copytree(EXAMPLES / "torchrun", tmp_path / "job" / "torchrun")
    return tmp_path / "job"


def test_the_example_names_the_rank_that_failed(commands: Commands, folder: Path) -> None:
    result = commands.run("bash", "-c", block("torchrun.md", "--standalone"), cwd=folder)
    assert result.returncode == 1, result.stderr
    assert "step 2" not in result.stdout  # in the files of the ranks
    assert "nccl-triage: the command failed with exit code 1" in result.stderr
    assert "root cause: application-exception" in result.stderr
    assert "culprit: rank 1" in result.stderr
    blocks = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    shown = next(text for text in blocks if "root cause" in text)
    without_pid = re.sub(r"pid \d+", "pid", result.stderr)
    assert re.sub(r"pid \d+", "pid", shown) in without_pid, "the page shows what is printed"
    assert "ValueError: sample 7 has 3 tokens" in (folder / "post-mortem.html").read_text(encoding="utf-8")
