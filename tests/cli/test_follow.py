"""--follow as users run it: a process of its own beside a log that grows, ended by Ctrl-C, SIGTERM or the end of a pipe."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from tests.cli.processes import environment, run
from tests.document import fields

STEPS = "".join(
    f"2026-01-02 10:00:{4 * step:02d} rank {rank} step {step}/900 loss 3.1\n"
    for step in range(1, 9)
    for rank in range(4)
)
OOM = "rank 3: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB\n"
#: One of the lines that other ranks print when a rank is gone: what is known before the cause is.
VICTIM = (
    "[rank0]:[E102 10:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
)
#: Seconds after which something that must happen has not.
PATIENCE = 60.0


class Following:
    """A running follower; what it prints is collected line by line."""

    def __init__(self, folder: Path, *words: str, stdin: int = subprocess.DEVNULL) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nccl_triage", "--follow", *words],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment(),
        )  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue()
        self.notes: queue.Queue[str] = queue.Queue()
        for stream, into in ((self.process.stdout, self.lines), (self.process.stderr, self.notes)):
            threading.Thread(target=self._collect, args=(stream, into), daemon=True).start()

    @staticmethod
    def _collect(stream: Any, into: queue.Queue[str]) -> None:
        for line in stream:
            into.put(line)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.lines.get(timeout=PATIENCE))
        return found

    def until(self, text: str, among: queue.Queue[str] | None = None) -> list[str]:
        """Return the lines up to one that holds a text."""
        found: list[str] = []
        while not found or text not in found[-1]:
            found.append((among or self.lines).get(timeout=PATIENCE))
        return found

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.log").write_text(STEPS)
    return tmp_path


@pytest.fixture
def following(folder: Path) -> Iterator[Any]:
    started: list[Following] = []

    def start(*words: str, **options: Any) -> Following:
        started.append(Following(folder, *words, **options))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def add(folder: Path, text: str) -> None:
    with (folder / "train.log").open("a") as stream:
        stream.write(text)


def test_verdicts_as_they_come_and_the_last_one_is_that_of_a_single_run(folder: Path, following: Any) -> None:
    hook = (
        "import json,os,sys; d=json.load(sys.stdin); "
        "print(os.environ['NCCL_TRIAGE_REASON'], os.environ['NCCL_TRIAGE_CAUSE'], d['follow']['number'], "
        "file=open('hook.out','a'))"
    )
    follower = following(
        "train.log", "--format", "ndjson", "--report", "report.html", "--exit-code",
        "--on-verdict", f"{sys.executable} -c {json.dumps(hook)}",
    )  # fmt: skip
    follower.until("Ctrl-C ends it", follower.notes)
    add(folder, VICTIM)
    first = follower.document()
    assert first["follow"]["reason"] == "first"
    assert first["diagnoses"][0]["cause"] != "gpu-out-of-memory"
    report = folder / "report.html"
    assert report.stat().st_size > 10_000, "whoever is killed leaves one"
    add(folder, OOM)
    update = follower.document()
    assert update["follow"]["reason"] == "update"
    assert update["diagnoses"][0]["cause"] == "gpu-out-of-memory"
    assert follower.end() == 1
    last = follower.document()
    follow = last.pop("follow")
    assert (follow["reason"], follow["number"], follow["hang"]) == ("end", 3, None)
    os.chdir(folder)
    once = diagnose("train.log").to_dict()
    assert {**last, "timing": None} == json.loads(json.dumps({**once, "timing": None}))
    assert (folder / "hook.out").read_text().splitlines() == [
        f"first {first['diagnoses'][0]['cause']} 1",
        "update gpu-out-of-memory 2",
        "end gpu-out-of-memory 3",
    ]
    assert b"gpu-out-of-memory" in report.read_bytes()
    follower.until("report written to report.html", follower.notes)
    for document in (first, update, {**last, "follow": follow}):
        fields.check(document)


def test_a_hang_is_suspected_and_taken_back(folder: Path, following: Any) -> None:
    add(folder, "2026-01-02 10:00:36 rank 2 step 9/900 loss 3.0\n")
    old = time.time() - 300
    os.utime(folder / "train.log", (old, old))
    follower = following("train.log", "--report", "report.html", "--output", "now.json", "--redact")
    told = follower.until("nccl-triage hang", follower.notes)
    shown = "".join(told)
    assert "hang suspected: no progress since" in shown
    assert "behind: rank 0-1, 3; silent: rank 0-3" in shown
    document = json.loads((folder / "now.json").read_text())
    hang = document["follow"]["hang"]
    assert document["follow"]["reason"] == "hang"
    assert (hang["silent_ranks"], hang["last_step"]) == ([0, 1, 2, 3], 9)
    assert any(note.startswith("Hang suspected") for note in document["notes"])
    assert b"Hang suspected" in (folder / "report.html").read_bytes()
    fields.check(document)
    add(folder, "2026-01-02 10:06:36 rank 2 step 10/900 loss 3.0\n")
    follower.until("the job goes on", follower.notes)
    assert follower.end(signal.SIGTERM) == 0
    document = json.loads((folder / "now.json").read_text())
    assert (document["verdict"], document["follow"]["reason"], document["follow"]["hang"]) == ("healthy", "end", None)


def test_a_pipe_that_ends_is_the_end(folder: Path, following: Any) -> None:
    follower = following("-", stdin=subprocess.PIPE)
    follower.process.stdin.write(STEPS + OOM)
    follower.process.stdin.flush()
    first = follower.until("root cause: gpu-out-of-memory")
    assert "the verdict so far:" in first[0]
    assert first[1].startswith("nccl-triage: ")
    assert follower.process.poll() is None
    follower.process.stdin.close()
    assert follower.process.wait(PATIENCE) == 0
    last = follower.until("the end; the verdict is still: Rank 3 ran out of GPU memory")
    assert not any("root cause:" in line for line in (*last, *follower.lines.queue)), "the verdict is printed once"


def test_what_has_changed_meanwhile_is_printed_at_the_end(folder: Path, following: Any) -> None:
    follower = following("-", stdin=subprocess.PIPE)
    follower.process.stdin.write(STEPS + OOM)
    follower.process.stdin.flush()
    follower.until("root cause: gpu-out-of-memory")
    follower.process.stdin.write(OOM.replace("rank 3", "rank 1"))
    follower.process.stdin.close()
    assert follower.process.wait(PATIENCE) == 0
    last = "".join(follower.until("root cause: gpu-out-of-memory"))
    assert "the end; the verdict on everything that was read:" in last
    assert "ranks 1 and 3" in last or "ranks 1, 3" in last


def test_following_an_empty_pipe_is_an_error(folder: Path) -> None:
    result = run("--follow", "-")
    assert (result.returncode, result.stdout) == (2, b"")
    assert b"cause: standard input is empty\n" in result.stderr


def test_a_second_ctrl_c_ends_at_once(following: Any) -> None:
    follower = following("-", stdin=subprocess.PIPE)
    follower.until("Ctrl-C ends it", follower.notes)
    follower.process.send_signal(signal.SIGINT)
    follower.until("Ctrl-C again ends at once", follower.notes)
    assert follower.end() == 130
    assert follower.lines.empty()


def test_what_is_not_there_yet_is_waited_for(folder: Path, following: Any) -> None:
    follower = following("late/*.log", "--format", "ndjson", "--lang", "zh")
    follower.until("正在等待", follower.notes)
    (folder / "late").mkdir()
    (folder / "late" / "a.log").write_text(STEPS + OOM)
    assert follower.document()["diagnoses"][0]["cause"] == "gpu-out-of-memory"
    assert follower.end() == 0


def test_what_follows_nothing_says_so(following: Any) -> None:
    follower = following("never.log")
    follower.until("never.log: No such file", follower.notes)
    assert follower.end() == 2
    follower.until("error: no readable input", follower.notes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on-verdict", "true"], "--on-verdict needs --follow"),
        (["--hang-after", "5"], "--hang-after needs --follow"),
        (["--follow", "--on-verdict", "no-such-command"], "there is no command no-such-command"),
        (["--follow", "--verify", "always", "--report", "r.html"], "--verify always cannot be combined with --follow"),
        (["--follow", "--hang-after", "1"], "1.0 is not a number from 2 to 10000"),
    ],
)
def test_wrong_options_are_refused(folder: Path, words: list[str], said: str) -> None:
    done = run(str(folder / "train.log"), *words)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert not done.stdout
