"""Ctrl-C, SIGTERM and SIGHUP at any call of a run: a sentence, 128 + N, nothing half written, no process left."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.hostile.trials import environment, failing

#: Sends the process itself a signal at its n-th call, counted from where signals are ours.
PROGRAM = """
import os, sys
at, number = int(sys.argv.pop(1)), int(sys.argv.pop(1))
count = 0
def profile(frame, event, argument):
    global count
    if not count:
        count = int(event == "return" and frame.f_code.co_name == "listen")
    elif event == "call":
        count += 1
        if count == at:
            os.kill(os.getpid(), number)
sys.setprofile(profile)
from nccl_triage.__main__ import run
run()
"""
SENTENCES = {"SIGINT": "interrupted\n", "SIGTERM": "ended by SIGTERM\n", "SIGHUP": "ended by SIGHUP\n"}


def interrupted(at: int, number: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(at), str(number), *words],
        capture_output=True, text=True, env=environment(), timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "job.log"
    path.write_bytes(b"".join(failing(3)))
    return path


# Imports, the command line, rules, the scan, the diagnosis, the report.
@pytest.mark.parametrize(
    ("at", "name"), [(2, "SIGTERM"), (3_000, "SIGINT"), (25_500, "SIGINT"), (60_000, "SIGHUP"), (250_000, "SIGTERM")]
)
def test_a_signal_at_any_call(at: int, name: str, log: Path, tmp_path: Path) -> None:
    number = signal.Signals[name]
    ended = interrupted(
        at, number, str(log), "--report", str(tmp_path / "report.html"), "--output", str(tmp_path / "result.json")
    )
    assert ended.returncode == 128 + number
    if "; the diagnosis of what was read until then:" not in ended.stderr.partition("\n")[0]:  # not while it read
        assert ended.stderr == SENTENCES[name]
    assert not ended.stdout
    for path in tmp_path.iterdir():  # the report may have been written before
        assert path.name in ("report.html", "result.json")
        if path.suffix == ".json":
            json.loads(path.read_bytes())


def listening(process: subprocess.Popen[str]) -> None:
    """Wait until our program answers signals: Python itself does not catch SIGTERM."""
    bit = 1 << (signal.SIGTERM - 1)
    for _ in range(2_000):
        told = Path(f"/proc/{process.pid}/status").read_text()
        if int(told.partition("SigCgt:")[2].split()[0], 16) & bit:
            return
        time.sleep(0.005)
    raise AssertionError("signals are not answered")


class Piped:
    """A run whose standard input is a pipe that holds a log and stays open."""

    def __init__(self, program: list[str], *words: str) -> None:
        reader, self._writer = os.pipe()
        for piece in failing(3):
            os.write(self._writer, piece)
        self.process = subprocess.Popen(
            [sys.executable, *program, *words], stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment(),
        )  # fmt: skip
        os.close(reader)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        os.close(self._writer)
        return self.process.returncode, out, err


# Imports, the command line, the rules; later calls wait for more of the pipe.
@pytest.mark.parametrize("at", [2, 500, 3_000, 10_000, 20_000, 25_000])
def test_ctrl_c_before_a_pipe_is_read_diagnoses_what_it_holds(at: int) -> None:
    code, out, err = Piped(["-c", PROGRAM, str(at), str(int(signal.SIGINT))], "--no-history").end()
    assert (code, err) == (130, "nccl-triage: interrupted; the diagnosis of what was read until then:\n")
    assert "root cause: " in out
    assert "PARTIAL" in out


@pytest.mark.parametrize("words", [["-"], ["/dev/fd/0"], ["-", "--format", "json"]])
def test_ctrl_c_while_a_pipe_is_open_diagnoses_what_was_read(words: list[str]) -> None:
    for delay in (0.0, 0.2, 0.6):
        piped = Piped(["-m", "nccl_triage"], *words)
        listening(piped.process)
        time.sleep(delay)
        piped.process.send_signal(signal.SIGINT)
        code, out, err = piped.end()
        assert (code, err) == (130, "nccl-triage: interrupted; the diagnosis of what was read until then:\n")
        assert "PARTIAL" in out


def test_ctrl_c_ends_a_pipe_that_never_ends() -> None:
    with subprocess.Popen(["yes", "step 1/20 loss 5.1"], stdout=subprocess.PIPE) as endless:
        process = subprocess.Popen(
            [sys.executable, "-m", "nccl_triage", "-"],
            stdin=endless.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        listening(process)
        time.sleep(0.8)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        endless.kill()
    assert process.returncode == 130
    assert "PARTIAL" in out


def test_ctrl_c_on_a_pipe_that_holds_nothing() -> None:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "nccl_triage", "-"],
        stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    listening(process)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    for end in (reader, writer):
        os.close(end)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_a_signal_that_the_caller_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ended = interrupted(3_000, signal.SIGHUP, "timeouts", "--parameters", "70B")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert ended.returncode == 0
    assert ended.stdout


def test_processes_of_a_scan_end_with_it(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        os.mkfifo(tmp_path / name)
    with subprocess.Popen(
        [sys.executable, "-m", "nccl_triage", "--one-job", "--jobs", "2", str(tmp_path / "a.log"), str(tmp_path / "b.log")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), start_new_session=True,
    ) as process:  # fmt: skip
        # Opening waits for the readers: both of them run then, and get nothing.
        pipes = [os.open(tmp_path / name, os.O_WRONLY) for name in ("a.log", "b.log")]
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        for pipe in pipes:
            os.close(pipe)
    assert (process.returncode, err) == (130, b"interrupted\n")
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("a process of the scan is left")


class Reading:
    """A run whose logs are pipes: it has read what was written into the first one, and waits for more."""

    def __init__(self, folder: Path, *words: str) -> None:
        names = [folder / "a.log", folder / "b.log"]
        for name in names:
            os.mkfifo(name)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nccl_triage", "--one-job", *map(str, names), *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True,
        )  # fmt: skip
        writer = os.open(names[0], os.O_WRONLY)  # waits for the reader
        self.pipes = [writer]
        self.size = sum(os.write(writer, piece) for piece in failing(3))
        deadline = time.monotonic() + 60
        while fcntl.ioctl(writer, termios.FIONREAD, b"\0" * 4) != b"\0" * 4:
            assert time.monotonic() < deadline, "it does not read"
            time.sleep(0.01)

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        for pipe in self.pipes:
            os.close(pipe)


@pytest.mark.parametrize(("name", "jobs"), [("SIGINT", "1"), ("SIGTERM", "2")])
def test_what_was_read_until_a_signal_is_diagnosed(name: str, jobs: str, tmp_path: Path) -> None:
    report, kept = tmp_path / "report.html", tmp_path / "history.sqlite"
    words = ("--jobs", jobs, "--format", "json", "--report", str(report), "--history", str(kept))
    with Reading(tmp_path, *words) as reading:
        if jobs == "2":
            reading.pipes.append(os.open(tmp_path / "b.log", os.O_WRONLY))  # the other process has begun, too
        os.kill(reading.process.pid, signal.Signals[name])
        out, err = reading.process.communicate(timeout=60)
    assert reading.process.returncode == 128 + signal.Signals[name]
    begins = "interrupted; the diagnosis" if name == "SIGINT" else "ended by SIGTERM; the diagnosis"
    assert err.startswith(f"nccl-triage: {begins} of what was read until then:\n")
    assert "report written" in err
    document = json.loads(out)
    assert document["interrupted"] == {
        "signal": name, "bytes_read": reading.size, "bytes": None, "files_read": 0, "files": 2
    }  # fmt: skip
    assert document["symptoms"]
    assert document["headline"].startswith("PARTIAL")
    assert "PARTIAL: reading was interrupted" in report.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"a.log", "b.log", "report.html"}


def test_the_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    nobody_reads = tmp_path / "result"
    os.mkfifo(nobody_reads)
    with Reading(tmp_path, "--output", str(nobody_reads)) as reading:
        assert reading.process.stderr is not None
        os.kill(reading.process.pid, signal.SIGINT)
        assert reading.process.stderr.readline().startswith("nccl-triage: interrupted; the diagnosis")
        os.kill(reading.process.pid, signal.SIGINT)
        _, err = reading.process.communicate(timeout=60)
    assert (reading.process.returncode, err) == (130, "interrupted\n")
