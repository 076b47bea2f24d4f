"""The status line of ``--follow``: on a terminal one line that is redrawn, elsewhere nothing of it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nccl_triage.cli import follow, language
from nccl_triage.follow.job_state import HostSilence, JobState, SlowRank
from tests.cli.processes import environment, resize

FULL = JobState(
    logs=16, ranks=64, step=812, total=5000, usual=1.93, advanced=42.0, slowest=SlowRank(3, "gn12", 809),
    hosts=[HostSilence("gn12", 185.0), HostSilence("gn07", 45.4), *(HostSilence(f"gn{n}", 0.2) for n in range(20, 34))],
)  # fmt: skip
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB\n"


@pytest.fixture(params=["en", "zh"])
def lang(request: pytest.FixtureRequest) -> Iterator[str]:
    language.use(request.param)
    yield request.param
    language.use("en")


def test_everything_in_one_line() -> None:
    assert follow.status(FULL, False, 160) == (
        "step 812/5000 | 1.9 s per step | slowest: rank 3 on gn12, step 809 | progress 42 s ago | "
        "last line: gn12 3 min, gn07 45 s, gn20 1 s, gn21 1 s ago, +12"
    )
    assert follow.status(FULL, True, 160).startswith("hang suspected | step 812/5000 | ")
    assert follow.status(FULL, False, 72) == ("step 812/5000 | 1.9 s per step | slowest: rank 3 on gn12, step 809")
    assert follow.status(JobState(logs=2), False, 80) == "logs: 2"
    slow = JobState(logs=1, ranks=4, step=9, slowest=SlowRank(2, None, None, 1.62), hosts=[HostSilence(None, 7300.0)])
    assert follow.status(slow, False, 90) == (
        "step 9 | slowest: rank 2, 1.6x as long | last line: 2 h ago | ranks: 4 | logs: 1"
    )


def test_in_chinese() -> None:
    language.use("zh")
    try:
        shown = follow.status(FULL, True, 200)
    finally:
        language.use("en")
    assert shown.startswith("疑似挂起 | 第 812/5000 步 | 每步 1.9 秒 | 最慢：gn12 上的 rank 3，第 809 步 | ")
    assert "最后输出：gn12 3 分钟" in shown or "最后输出：gn12 3 分" in shown


def test_it_is_never_wider_than_the_terminal(lang: str) -> None:
    for room in range(10, 200):
        assert language.columns(follow.status(FULL, True, room)) <= room


def test_a_hostile_name_is_shown_and_not_obeyed() -> None:
    state = JobState(1, 1, 1, slowest=SlowRank(0, "a\x1b[2Jb", 1), hosts=[HostSilence("x\r\x1b[31my", 1.0)])
    assert follow.status(state, False, 200).isprintable()


class Terminal:
    """A follower on a pseudo-terminal, and what such a terminal shows: text, line ends and carriage returns."""

    def __init__(self, folder: Path, columns: int, *words: str, stdout: int | None = None) -> None:
        self._terminal, entry = pty.openpty()
        self._entry = entry
        resize(entry, columns)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nccl_triage", "--follow", str(folder), *words],
            stdin=subprocess.DEVNULL, stdout=entry if stdout is None else stdout, stderr=entry, cwd=folder,
            env={**environment(), "TERM": "xterm", "NO_COLOR": "1"},
        )  # fmt: skip
        self.written = ""
        self.states: list[str] = []

    def resize(self, columns: int) -> None:
        resize(self._entry, columns)

    def read(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._terminal], [], [], left)[0]:
                self.written += os.read(self._terminal, 1 << 16).decode()

    def until(self, pattern: str) -> None:
        deadline = time.monotonic() + 60
        while not re.search(pattern, self.lines[-1]) and not re.search(pattern, "\n".join(self.lines)):
            assert time.monotonic() < deadline, self.lines
            self.read(0.1)

    @property
    def lines(self) -> list[str]:
        """The lines as they stand on the screen, the last one being the status."""
        found = []
        for line in self.written.replace("\r\n", "\n").split("\n"):
            shown: list[str] = []
            for text in line.split("\r"):
                cells = list(text)
                shown[: len(cells)] = cells
            found.append("".join(shown).rstrip())
        return found

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        while self.process.poll() is None:
            self.read(0.1)
        self.read(0.2)
        os.close(self._entry)
        os.close(self._terminal)


def write(folder: Path, rank: int, text: str) -> None:
    with (folder / f"train_gpunode{rank // 2 + 1}_rank{rank}.log").open("a") as stream:
        stream.write(text)


def test_on_a_terminal_it_is_redrawn_and_cleared_before_a_verdict(tmp_path: Path) -> None:
    write(tmp_path, 0, "step 1/90 loss 3.1\n")
    write(tmp_path, 3, "step 1/90 loss 3.1\n")
    terminal = Terminal(tmp_path, 100)
    try:
        terminal.until(r"step 1/90 \| last line: gpunode1 \d+ s, gpunode2 \d+ s ago \| ranks: 2 \| logs: 2")
        for step in range(2, 6):
            write(tmp_path, 0, f"step {step}/90 loss 3.1\n")
        terminal.until(r"step 5/90 .*slowest: rank 3 on gpunode2, step 1")
        terminal.resize(40)
        write(tmp_path, 0, "step 6/90 loss 3.1\n")
        terminal.until("step 6/90")
        assert all(len(text) < 40 for text in terminal.written.rpartition("\rstep 6/90")[2].split("\r"))
        terminal.resize(100)
        terminal.until(r"step 6/90 .*slowest: rank 3 on gpunode2, step 1 \|")
        write(tmp_path, 3, OOM)
        terminal.until("root cause: gpu-out-of-memory")
        terminal.until(r"(?s)more: .*\nstep 6/90")
    finally:
        terminal.end()
    assert terminal.process.returncode == 0
    *shown, last = terminal.lines
    assert last == ""
    assert not [line for line in shown if "step 6/90" in line or "ranks: 2" in line]
    assert any(line.startswith("nccl-triage: Rank 3 on gpunode2 ran out of GPU memory") for line in shown)
    redrawn = terminal.written.count("\rstep ")
    assert 4 <= redrawn < 200


def test_with_stdout_in_a_pipe_nothing_of_it_is_among_the_verdicts(tmp_path: Path) -> None:
    write(tmp_path, 0, "step 1/90 loss 3.1\n")
    reader, writer = os.pipe()
    terminal = Terminal(tmp_path, 100, stdout=writer)
    os.close(writer)
    try:
        terminal.until("step 1/90")
    finally:
        terminal.end()
    with os.fdopen(reader) as stream:
        verdict = stream.read()
    assert "\r" not in verdict
    assert "| logs: 1" not in verdict


def test_without_a_terminal_there_is_no_status_line(tmp_path: Path) -> None:
    write(tmp_path, 0, "step 1/90 loss 3.1\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "nccl_triage", "--follow", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment(),
    )  # fmt: skip
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert "\r" not in stdout + stderr
    assert "step 1/90 |" not in stdout + stderr
