"""The actor beside one node's agent: it starts the agent and carries lines between it and the driver.

Ray pickles this module by value, so that the cluster's nodes need no nccl-triage: standard library only. Calls may
overtake each other, come twice or get lost, so lines are numbered in both directions and kept until they are confirmed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

#: Bytes of a rank's log that are carried to the driver: its end.
LOG = 4 << 20
_WORDS = 1 << 16


class Relay:
    """One node's agent behind method calls.

    ``worker`` is the worker's zip application. It lies in a file without a name (memfd_create(2)) that is gone with
    this process however it ends: a node that is lost keeps nothing. ``folder`` is where the driver keeps the logs; when
    this node does not see it, the ranks write to a folder of that name here, their logs travel with their ``exit``
    answers, and ``stop`` removes it.
    """

    def __init__(self, worker: bytes, folder: str) -> None:
        self._foreign = None if Path(folder).exists() else folder
        self._runs: dict[str, str] = {}
        self._errors = os.memfd_create("stderr")
        program = os.memfd_create("worker.pyz")
        with open(program, "wb", closefd=False) as file:
            file.write(worker)
        # Named, not inherited: the processes that the agent starts find the program under the same name.
        command = [sys.executable, f"/proc/{os.getpid()}/fd/{program}", "agent"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
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
                self._note(line)
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

    def stop(self, patience: float) -> None:
        """End the agent's input, which ends its ranks; kill it when it lingers for ``patience`` seconds."""
        self._commands.put(None)
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._foreign is not None:
            shutil.rmtree(self._foreign, ignore_errors=True)

    def _write(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as pipe:
            for line in iter(self._commands.get, None):
                pipe.write(line)
                pipe.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._say(self._with_log(line))
        gone = {"answer": "gone", "error": self._last_words(self._process.wait())}
        self._say(json.dumps(gone).encode())

    def _say(self, line: bytes) -> None:
        with self._news:
            self._said.append(line)
            self._news.notify_all()

    def _last_words(self, code: int) -> str:
        text = os.pread(self._errors, _WORDS, max(0, os.fstat(self._errors).st_size - _WORDS))
        lines = text.decode(errors="replace").strip().splitlines()
        return (lines or [f"the agent ended with exit code {code}"])[-1][:400]

    def _note(self, line: bytes) -> None:
        """Keep where a run's logs will lie."""
        command = json.loads(line)
        if command.get("do") == "run":
            self._runs[command["run"]] = command["folder"]

    def _with_log(self, line: bytes) -> bytes:
        """Return the answer; a rank's log is added to its end when the driver cannot read it where it lies."""
        if self._foreign is None or not line.startswith(b'{"answer": "exit"'):
            return line
        with contextlib.suppress(OSError, ValueError, KeyError):
            answer = json.loads(line)
            folder = self._runs[answer["run"]]
            with Path(folder, f"rank-{answer['rank']}.log").open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - LOG))
                answer["log"] = log.read().decode(errors="replace")
            return json.dumps(answer).encode()
        return line
