"""Processes that the worker starts, and how their ends are told."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from nccl_triage.verify.worker import children


def started(code: str) -> int:
    return os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", code], os.environ)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_an_end_is_told_as_subprocess_tells_it(code: str, wanted: int) -> None:
    assert children.waited(started(code), 60.0) == wanted


def test_a_child_that_lingers_is_killed() -> None:
    begun = time.monotonic()
    assert children.waited(started("import time; time.sleep(600)"), 0.05) == -signal.SIGKILL
    assert time.monotonic() - begun < 60


def test_a_child_that_is_gone_already_has_no_end() -> None:
    pid = started("")
    os.waitpid(pid, 0)
    assert children.waited(pid) is None
