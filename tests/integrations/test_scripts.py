"""All shell scripts of the recipes are clean by ShellCheck, and can be run as they lie there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .conftest import EXAMPLES, PATIENCE, program

SCRIPTS = sorted(
    path for path in EXAMPLES.rglob("*") if path.is_file() and path.read_bytes().startswith((b"#!/bin/bash", b"#!/bin/sh"))
)  # fmt: skip


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 4


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_script_can_be_executed(script: Path) -> None:
    assert os.access(script, os.X_OK)


def test_shellcheck_has_nothing_to_say() -> None:
    result = subprocess.run(
        [program("shellcheck"), "--external-sources", *map(str, SCRIPTS)],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
