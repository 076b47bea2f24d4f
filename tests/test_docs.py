"""The documentation cannot drift from the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_generated_parts_are_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build.py"), "--check"], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT / "analyzer"), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_command_and_option_is_documented() -> None:
    from nccl_triage.cli import COMMANDS

    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"## nccl-triage {name}" in text
    for option in ("--format", "--report", "--output", "--force", "--rules", "--lang", "--jobs", "--exit-code"):
        assert option in text


def test_links_in_the_readme_exist() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "corpus/README.md", "rules/README.md"):
        path = ROOT / name
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), (name, target)


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
