"""Where results go: a full disk, a closed pipe, a device, a folder that refuses; nothing half written, one sentence."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nccl_triage.cli import options
from nccl_triage.errors import OutputError, UsageError
from tests.hostile.trials import environment, failing

FULL = Path("/dev/full")


def run(*words: str, **streams: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "nccl_triage", *words],
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        env=environment(), timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("words", [["LOG"], ["explain", "NCCL_IB_HCA"]])
def test_no_room_for_the_result(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "LOG").write_bytes(b"".join(failing(2)))
    with FULL.open("wb", buffering=0) as full:
        ended = run(*(str(tmp_path / word) if word == "LOG" else word for word in words), stdout=full)
    assert ended.returncode == 2
    assert ended.stderr == b"error: cannot write the result\ncause: No space left on device\n"


def test_no_room_for_a_file_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OutputError, match="cannot write"):
        options.write_file(path, b"new", force=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    assert path.read_bytes() == b"old"


def test_an_interrupt_while_a_file_is_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(b"old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        options.write_file(path, b"new", force=True)
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"old"]


def test_a_pipe_as_output_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    options.refuse_existing([pipe], force=False)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    options.write_file(pipe, b"result", force=False)
    assert os.read(reader, 100) == b"result"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_existing_file_needs_force(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"mine")
    with pytest.raises(UsageError, match="already exists"):
        options.refuse_existing([path], force=False)
    with pytest.raises(OutputError, match="already exists"):
        options.write_file(path, b"new", force=False)
    assert path.read_bytes() == b"mine"


def test_a_reader_that_leaves_ends_the_run_without_a_word(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    ended = run("rules", "list", stdout=write)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")
