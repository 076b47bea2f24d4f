"""What runs inside actors on the nodes of a Ray cluster.

Ray pickles this module by value, so that the cluster's nodes need no nccl-triage: standard library only.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WORDS = 1 << 16


class Relay:
    """A program on a node behind method calls, which relays lines between it and the driver.

    Calls may overtake each other, come twice or get lost, so lines are numbered in both directions and kept until they are
    confirmed. The program is started by ``boot``, a line of Python that reads ``payload``: a node that is lost keeps nothing.
    ``folder`` is where the driver keeps files; where this node does not see it, the program gets the words ``away``, too.
    """

    def __init__(self, boot: str, payload: bytes, words: Sequence[str], away: Sequence[str], folder: str) -> None:
        self._errors = _unnamed("stderr")
        more = () if Path(folder).exists() else away
        self._process = subprocess.Popen(
            [sys.executable, "-c", boot, *words, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(),
            start_new_session=True,
        )
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._commands.put(payload)
        self._early: dict[int, bytes] = {}
        self._expected = 0
        self._said: list[bytes] = []
        self._confirmed = 0
        self._news = threading.Condition()
        for loop in (self._write, self._read):
            threading.Thread(target=loop, daemon=True).start()

    def pid(self) -> int:
        """Return the process id of the program."""
        return self._process.pid

    def clock(self) -> float:
        """Return the time of this node's clock."""
        return time.time()

    def send(self, number: int, line: bytes) -> None:
        """Hand one command to the program, in the order of the numbers (from 0), each once, never waiting."""
        with self._news:
            if number >= self._expected:
                self._early[number] = line
            while self._expected in self._early:
                line = self._early.pop(self._expected)
                self._expected += 1
                self._commands.put(line)

    def receive(self, number: int, timeout: float) -> tuple[list[bytes], int]:
        """Return the program's lines from ``number`` on and the number of the next command that is expected.

        Waits for the first line, ``timeout`` seconds at most. The lines before ``number`` are confirmed and forgotten.
        """
        with self._news:
            if number < self._confirmed:
                return [], self._expected  # a call that was overtaken: nobody waits for it
            del self._said[: number - self._confirmed]
            self._confirmed = number
            self._news.wait_for(lambda: self._said, timeout)
            return list(self._said), self._expected

    def stop(self, timeout: float) -> None:
        """End the program's input, which ends its ranks; kill it when it lingers for ``timeout`` seconds."""
        self._commands.put(None)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _write(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as pipe:
            for line in iter(self._commands.get, None):
                pipe.write(line)
                pipe.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._say(line)
        gone = {"answer": "gone", "error": self._last_words(self._process.wait())}
        self._say(json.dumps(gone).encode())

    def _say(self, line: bytes) -> None:
        with self._news:
            self._said.append(line)
            self._news.notify_all()

    def _last_words(self, code: int) -> str:
        text = os.pread(self._errors, _WORDS, max(0, os.fstat(self._errors).st_size - _WORDS))
        lines = text.decode(errors="replace").strip().splitlines()
        return (lines or [f"the program exited with code {code}"])[-1][:400]


class GpuHolder:
    """An actor that does nothing but keep the GPUs of its node that Ray has given to it."""

    def visible(self) -> str:
        """Return CUDA_VISIBLE_DEVICES as Ray has set it."""
        return os.environ.get("CUDA_VISIBLE_DEVICES", "")


class Service:
    """An object of our code behind method calls.

    ``program`` is a zip with the code. It lies in a file without a name that is gone with this process, however it ends.
    """

    def __init__(self, program: bytes, module: str, name: str, *arguments: Any) -> None:
        self._program = _unnamed("nccl_triage.zip")
        with open(self._program, "wb", closefd=False) as file:
            file.write(program)
        sys.path.insert(0, f"/proc/self/fd/{self._program}")
        # Nothing stays on the node; a home folder may be the same for thousands of them.
        os.environ["NCCL_TRIAGE_CACHE"] = "off"
        self._object = getattr(importlib.import_module(module), name)(*arguments)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the object."""
        return getattr(self._object, name)(*arguments)


def _environment() -> dict[str, str]:
    """Return the node's environment, without what Ray sets for an actor that asks for no CPU and no GPU."""
    own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if not own.get("CUDA_VISIBLE_DEVICES"):
        own.pop("CUDA_VISIBLE_DEVICES", None)
    return own


def _unnamed(name: str) -> int:
    """Return a file that lies in no folder; Pythons built for an old glibc (conda's, uv's) have no memfd_create(2)."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
