"""The actor beside the agent of a node: starts the agent and relays lines between it and the driver.

Ray pickles this module by value, so that the cluster's nodes need no nccl-triage: standard library only. Calls may
overtake each other, come twice or get lost, so lines are numbered in both directions and kept until they are confirmed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

_WORDS = 1 << 16


class Relay:
    """One node's agent behind method calls.

    ``worker`` is the worker's zip application. It lies in a file without a name that is gone with this process however it
    ends: a node that is lost keeps nothing. ``folder`` is where the driver keeps the logs; when this node does not see it,
    the agent sends them.
    """

    def __init__(self, worker: bytes, folder: str) -> None:
        self._errors = _unnamed("stderr")
        program = _unnamed("worker.pyz")
        with open(program, "wb", closefd=False) as file:
            file.write(worker)
        # Named, not inherited: the processes that the agent starts find the program under the same name.
        command = [sys.executable, f"/proc/{os.getpid()}/fd/{program}", "agent"]
        if not Path(folder).exists():
            command.append("carry")
        # The job's working folder is the current one: nothing of it may stand in for a module.
        path = [entry for entry in os.environ.get("PYTHONPATH", "").split(":") if _elsewhere(entry)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**_environment(os.environ), "PYTHONPATH": ":".join(path), "PYTHONSAFEPATH": "1"},
            start_new_session=True,
        )
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._early: dict[int, bytes] = {}
        self._expected = 0
        self._said: list[bytes] = []
        self._confirmed = 0
        self._news = threading.Condition()
        for loop in (self._write, self._read):
            threading.Thread(target=loop, daemon=True).start()

    def pid(self) -> int:
        """Return the process id of this actor; answered once the agent was started."""
        return os.getpid()

    def send(self, number: int, line: bytes) -> None:
        """Hand one command to the agent, in the order of the numbers (from 0), each once, never waiting."""
        with self._news:
            if number >= self._expected:
                self._early[number] = line
            while self._expected in self._early:
                line = self._early.pop(self._expected)
                self._expected += 1
                self._commands.put(line)

    def receive(self, number: int, timeout: float) -> tuple[list[bytes], int]:
        """Return the agent's lines from ``number`` on and the number of the next command that is expected.

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
        """End the agent's input, which ends its ranks; kill it when it lingers for ``timeout`` seconds."""
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
        return (lines or [f"the agent exited with code {code}"])[-1][:400]


class GpuHolder:
    """An actor that does nothing but keep the GPUs of its node that Ray has given to it."""

    def visible(self) -> str:
        """Return CUDA_VISIBLE_DEVICES as Ray has set it."""
        return os.environ.get("CUDA_VISIBLE_DEVICES", "")


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the agent's environment: Ray hides all GPUs from an actor that asks for none, but it shall see them."""
    return {name: value for name, value in own.items() if name != "CUDA_VISIBLE_DEVICES" or value}


def _elsewhere(entry: str) -> bool:
    return Path(entry).is_absolute() and Path(entry).resolve() != Path("/proc/self/cwd").resolve()


def _unnamed(name: str) -> int:
    """Return a file that lies in no folder; Pythons built for an old glibc (conda's, uv's) have no memfd_create(2)."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
