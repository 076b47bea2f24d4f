"""Variables that a process has set itself are read from its memory, while it goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nccl_triage.hang.environment import current

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
CODE = """
import os, sys
os.environ.update({f"FILLER_{n}": "x" * n for n in range(300)}, RANK="5", LONG="y" * 5000)
del os.environ["GONE"]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs what ptrace needs")
@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])
def test_what_a_process_has_set_itself(python: str) -> None:
    """One of the two may hold the variables in the program itself, the other in the C library."""
    if shutil.which(python) is None:
        pytest.skip(f"there is no {python}")
    environment = {**os.environ, "RANK": "1", "GONE": "x"}
    with subprocess.Popen(
        [python, "-S", "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = dict(current(process.pid))
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.kill()
    assert found["RANK"] == "5" and found["FILLER_299"] == "x" * 299 and "GONE" not in found
    assert len(found["LONG"]) < 2000
    assert "TracerPid:\t0" in status


def test_nothing_is_known_of_what_cannot_be_read() -> None:
    assert list(current(2**22 + 1)) == []
    shell = subprocess.Popen(["sh", "-c", "kill -STOP $$"])
    try:
        assert all(name for name, _ in current(shell.pid))
    finally:
        shell.kill()
        shell.wait()
