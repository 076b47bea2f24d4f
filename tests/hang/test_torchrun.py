"""A real torchrun job that hangs: the rank that is elsewhere is named, and no process notices that somebody looks."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from nccl_triage import diagnose
from tests.hang.hanging import ROOT, TRAIN, alive, bare_python, children, hang, running, wait_for

pytestmark = [
    pytest.mark.xdist_group("hang-torchrun"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]
WORLD = 3


class _Job(NamedTuple):
    folder: Path
    launcher: int
    ranks: list[int]
    python: str
    environment: dict[str, str]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Job]:
    """A job of three ranks that has hung at step 4, run by a Python without py-spy."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(TRAIN, "utf-8")
    python, environment = bare_python(folder)
    words = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD), "train.py"]
    with running(words, folder, environment) as launcher:
        ready = [folder / f"ready.{rank}" for rank in range(WORLD)]
        wait_for(lambda: all(path.exists() for path in ready), "the job hangs")
        found = {_rank(pid): pid for pid in children(launcher.pid)}
        yield _Job(folder, launcher.pid, [found[str(rank)] for rank in range(WORLD)], python, environment)


def _rank(pid: int) -> str | None:
    told = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next((entry.removeprefix("RANK=") for entry in told if entry.startswith("RANK=")), None)


def _signals(job: _Job) -> list[bytes]:
    return [(job.folder / f"signals.{rank}").read_bytes() for rank in range(WORLD)]


def test_the_rank_that_is_elsewhere_is_named(job: _Job, tmp_path: Path) -> None:
    result = hang("--pid", str(job.launcher), "--wait", "0.5", "--out", "evidence", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("nccl-triage: Likely: Rank 1 on ")
    assert "is in export_report (train.py:" in lines[0] and lines[0].endswith("; 2 others wait.")
    assert "root cause: rank-divergence" in lines[1]
    assert len(lines) <= 16
    assert lines[-2:] == ["  evidence of 3 processes: evidence", "  diagnose again: nccl-triage evidence"]
    made = json.loads((tmp_path / "evidence" / "hang.json").read_text("utf-8"))
    [host] = made["hosts"]
    assert {one["rank"]: one["pid"] for one in host["ranks"]} == dict(enumerate(job.ranks))
    assert f"pid {job.ranks[1]}" in lines[1]
    assert all(len(one["samples"]) == 2 for one in host["ranks"])
    assert made["missing_ranks"] == [] and host["without_process"] == []
    names = {path.name for path in (tmp_path / "evidence").rglob("*") if path.is_file()}
    assert "train.log" in names
    assert sum(name.startswith("stack.") for name in names) == WORLD
    assert any(name.startswith("connections.") for name in names)
    assert stat.S_IMODE((tmp_path / "evidence").stat().st_mode) == 0o700
    again = diagnose(tmp_path / "evidence").to_dict()
    assert again["diagnoses"][0]["cause"] == "rank-divergence"
    assert [one["rank"] for one in again["diagnoses"][0]["culprits"]] == [1]


def test_without_py_spy_the_kernel_still_tells_where_each_one_waits(job: _Job, tmp_path: Path) -> None:
    words = ["--pid", str(job.ranks[0]), "--wait", "0.2", "--out", "evidence", "--report", "all"]
    result = hang(*words, folder=tmp_path, python=job.python, environment=job.environment)
    assert result.returncode == 0, result.stderr
    assert "stacks: py-spy is not installed" in result.stderr
    assert "healthy" not in result.stdout and "process-crashed" not in result.stdout
    place = Path(f"/proc/{job.ranks[1]}/wchan").read_text()
    if place not in ("", "0"):  # as the kernel is built
        assert result.stdout.startswith(f"nccl-triage: Possibly: Rank 1 is in {place} and 2 others in ")
        assert "root cause: rank-divergence (possible, " in result.stdout
        assert f"1 (rank 1) in {place}" in (tmp_path / "all").read_text("utf-8")


def test_no_process_is_stopped_or_signalled(job: _Job, tmp_path: Path) -> None:
    """Also with a stand-in for py-spy that tells how it was started; the last lines show that a signal would be noticed."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "py-spy").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n', "utf-8")
    (tools / "py-spy").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "analyzer"), "PATH": f"{tools}:{os.environ['PATH']}"}
    words = ["--pid", str(job.launcher), "--wait", "0", "--out"]
    before = [_times_stopped(pid) for pid in job.ranks]
    assert hang(*words, "one", folder=tmp_path).returncode == 0
    assert hang(*words, "two", folder=tmp_path, environment=environment).returncode == 0
    asked = (tmp_path / "asked").read_text("utf-8").split("\n")[:-1]
    assert len(asked) >= 2 * WORLD and all(line.startswith("dump --nonblocking --pid ") for line in asked)
    assert all(map(alive, [job.launcher, *job.ranks]))
    assert [_times_stopped(pid) for pid in job.ranks] == before
    assert _signals(job) == [b""] * WORLD
    os.kill(job.ranks[1], signal.SIGUSR2)
    wait_for(lambda: _signals(job)[1] == bytes([signal.SIGUSR2]), "the signal is noted")


def _times_stopped(pid: int) -> tuple[str, str]:
    """Return who traces a process and which signals wait for it."""
    told = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return told["TracerPid"], told["SigPnd"] + told["ShdPnd"]


def test_a_signal_goes_only_to_ranks_that_handle_it_and_only_if_told(job: _Job, tmp_path: Path) -> None:
    deaf = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    try:
        words = ["--pid", str(job.launcher), "--pid", str(deaf.pid), "--wait", "0", "--out"]
        both = hang(*words, "both", folder=tmp_path)
        assert both.returncode == 2 and "2 jobs were found" in both.stderr
        alone = hang("--pid", str(deaf.pid), "--signal", "USR1", "--wait", "0", "--out", "deaf", folder=tmp_path)
        assert alone.returncode == 0, alone.stderr
        assert f"process {deaf.pid} does not handle SIGUSR1, which would kill it" in alone.stderr
        assert deaf.poll() is None
    finally:
        deaf.kill()
        deaf.wait()
    result = hang("--pid", str(job.launcher), "--signal", "USR1", "--wait", "0", "--out", "told", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert all(found.endswith(bytes([signal.SIGUSR1])) for found in _signals(job))
    assert all(map(alive, job.ranks))
