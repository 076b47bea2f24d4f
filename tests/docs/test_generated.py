"""The documentation cannot drift from the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_generated_parts_are_up_to_date(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build.py"), "--check"], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT / "analyzer"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_make_help_lists_the_targets() -> None:
    result = subprocess.run(["make", "help"], capture_output=True, text=True, check=True, cwd=ROOT, timeout=30)
    for target in (
        "help",
        "setup",
        "test",
        "lint",
        "types",
        "check",
        "rules",
        "evaluate",
        "bench",
        "docs",
        "dist",
        "clean",
    ):
        assert f"make {target} " in result.stdout
