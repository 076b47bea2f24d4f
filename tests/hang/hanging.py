"""Real jobs that hang, and how the command is run beside them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Seconds for processes of a job to be where they hang.
READY = 90.0
#: A program whose rank 1 sleeps in a function of its own while the others wait in an all-reduce. Whatever signal comes is
#: noted at once, even in a rank that is blocked in C++.
TRAIN = """
import os, signal, sys, time
rank = int(os.environ["RANK"])
noted = os.open(f"signals.{rank}", os.O_WRONLY | os.O_CREAT)
os.set_blocking(noted, False)
signal.set_wakeup_fd(noted)
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, lambda *_: None)
import torch
import torch.distributed as dist

def export_report():
    open(f"ready.{rank}", "w").close()
    time.sleep(600)

def train():
    for step in range(1, 100):
        if step == 4 and rank == 1:
            export_report()
        if step == 4:
            open(f"ready.{rank}", "w").close()
        dist.all_reduce(torch.ones(4))
        print(f"rank {rank} step {step} loss {1 / step:.3f}", flush=True)

dist.init_process_group("gloo")
train()
"""
#: A rank without torch.
SLEEP = """
import sys, time
def wait_for_data():
    open(sys.argv[1], "w").close()
    print("waiting with --token=hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", flush=True)
    time.sleep(600)
wait_for_data()
"""


#: A rank that works.
WORK = """
import sys, time
def train():
    for step in range(1, 10000):
        print(f"step {step}/10000 loss {1 / step:.5f}", flush=True)
        open(sys.argv[1], "w").close()
        time.sleep(0.05)
train()
"""


def bare_python(folder: Path) -> tuple[str, dict[str, str]]:
    """Return a Python beside which there is no py-spy, and an environment in which it finds the packages."""
    python = folder / "python"
    python.symlink_to(Path(sys.executable).resolve())
    packages = ":".join(
        dict.fromkeys([str(ROOT / "analyzer"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    )
    kept = {name: value for name, value in os.environ.items() if name in ("LANG", "TMPDIR", "LD_LIBRARY_PATH")}
    return str(python), {**kept, "PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": packages}


@contextlib.contextmanager
def running(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a session of its own, which is ended with all that it has started."""
    with (folder / "train.log").open("ab") as log:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=dict(environment),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pid in [process.pid, *children(process.pid)]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def children(pid: int) -> list[int]:
    """Return the processes below one."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found += [int(entry.name), *children(int(entry.name))]
    return found


def wait_for(condition: Callable[[], bool], what: str, seconds: float = READY) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Tell whether a process runs."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@contextlib.contextmanager
def sleeping_ranks(folder: Path, numbers: Sequence[int], code: str = SLEEP, **variables: str) -> Iterator[list[int]]:
    """Run ranks that sleep, or do something else; yields their pids."""
    (folder / "rank.py").write_text(code, "utf-8")
    with contextlib.ExitStack() as stack:
        pids = []
        for rank in numbers:
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "SECRET_TOKEN": "hunter2hunter2", **variables}
            words = [sys.executable, "-S", "rank.py", f"ready.{rank}"]
            pids.append(stack.enter_context(running(words, folder, {**os.environ, **own})).pid)
        wait_for(lambda: all((folder / f"ready.{rank}").exists() for rank in numbers), "the ranks sleep")
        yield pids


def hang(
    *words: str, folder: Path, python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``nccl-triage hang`` in a folder."""
    own = environment if environment is not None else {**os.environ, "PYTHONPATH": str(ROOT / "analyzer")}
    return subprocess.run(
        [python, "-m", "nccl_triage", "hang", *words],
        cwd=folder, env=dict(own), capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
