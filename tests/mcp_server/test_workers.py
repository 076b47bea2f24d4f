"""A call ends in time: reading stops and the rest is said, and a child that hangs is killed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.mcp_server import workers
from nccl_triage.mcp_server.access import CallRefusedError
from nccl_triage.mcp_server.workers import WorkerLimits
from tests.event_loops import run_apart


def work(seconds: float, **request: Any) -> dict[str, Any]:
    async def call() -> dict[str, Any]:
        return await WorkerLimits(seconds).run(request)

    return run_apart(call)


def test_reading_stops_in_time_and_what_was_read_is_told(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    with log.open("w") as stream:
        for number in range(400_000):  # more than a second of work
            stream.write(
                f"gn{number % 97}:{number}:{number} [0] NCCL INFO Channel 00/0 : {number} -> {number + 1} via P2P\n"
            )
    try:
        document = work(0.7, do="diagnose", paths=[str(log)])["document"]
    except CallRefusedError as error:  # a busy machine had no time to begin
        assert "longer than 0.7 seconds" in str(error)
    else:
        assert document["interrupted"]["bytes_read"] < log.stat().st_size
        assert document["headline"].startswith("PARTIAL")


def test_nothing_read_in_time_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("step 1 loss 2.1\n" * 100)
    with pytest.raises(CallRefusedError, match=r"longer than 0\.0001 seconds"):
        work(0.0001, do="diagnose", paths=[str(log)])


def test_a_child_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    hangs = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(60)"
    monkeypatch.setattr(workers, "_COMMAND", [sys.executable, "-c", hangs])
    monkeypatch.setattr(workers, "BEYOND", 2.0)
    began = time.monotonic()
    with pytest.raises(CallRefusedError, match="longer than"):
        work(0.1, do="explain", query="x")
    assert time.monotonic() - began < 20
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_modules_of_the_current_folder_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("orjson", "click", "yaml", "mcp"):
        (tmp_path / f"{name}.py").write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()\n")
    monkeypatch.chdir(tmp_path)
    # An empty entry is the current folder.
    monkeypatch.setenv("PYTHONPATH", f":{os.environ.get('PYTHONPATH', '')}")
    assert "NCCL_IB_HCA" in work(30, do="explain", query="NCCL_IB_HCA", lang="en")["page"]
    assert not (tmp_path / "ran").exists()


def test_a_child_that_fails_and_an_error_of_the_user_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CallRefusedError, match="nothing is known about qqzzqq"):
        work(30, do="explain", query="qqzzqq", lang="en")
    with pytest.raises(CallRefusedError, match="failed on this input"):
        work(30, do="no such work")
