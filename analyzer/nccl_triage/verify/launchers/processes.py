"""Agents as child processes: on this host, or on others through a command such as ``ssh NAME``."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_triage.errors import UsageError
from nccl_triage.verify import bundle
from nccl_triage.verify.launchers import Link
from nccl_triage.verify.model import Place

#: Seconds an agent gets to kill its ranks after its input was closed.
FAREWELL = 2.0
_CHUNK = 1 << 16


class ProcessLink:
    """An agent behind the pipes of a child process."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None and self._process.stdin is not None
        self._out = self._process.stdout
        self._in = self._process.stdin
        os.set_blocking(self._out.fileno(), False)
        self._rest = b""
        self._gone = False

    def send(self, command: Mapping[str, Any]) -> None:
        """Write one command; a broken pipe is left to ``receive``."""
        with contextlib.suppress(OSError, ValueError):
            self._in.write(json.dumps(command).encode() + b"\n")
            self._in.flush()

    def receive(self) -> list[dict[str, Any]]:
        """Return the answers that have arrived."""
        found: list[dict[str, Any]] = []
        while not self._gone:
            try:
                data = os.read(self._out.fileno(), _CHUNK)
            except BlockingIOError:
                break
            if not data:
                self._gone = True
                found.append({"answer": "gone", "error": self._last_words()})
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(FAREWELL)
        os.set_blocking(self._process.stderr.fileno(), False)
        text = (self._process.stderr.read() or b"").decode(errors="replace").strip()
        return (text.splitlines() or [f"exit code {self._process.returncode}"])[-1][:400]

    def descriptor(self) -> int | None:
        """Return the pipe's descriptor."""
        return self._out.fileno()

    def close(self) -> None:
        """Close the agent's input, which ends it, and kill it when it lingers."""
        with contextlib.suppress(OSError, ValueError):
            self._in.close()
        try:
            self._process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._out, self._process.stderr):
            if pipe is not None:
                pipe.close()


class ProcessLauncher:
    """One agent a place, each the child of this process or of the command that reaches its host.

    ``python`` is the interpreter that has torch; the worker is carried there as one file in ``folder``, which every
    host must see under the same path when there are several.
    """

    def __init__(self, places: Sequence[Place], folder: Path, python: str | None = None) -> None:
        self.places = places
        self._folder = folder
        self._python = python or sys.executable
        self._links: list[ProcessLink] = []

    def open(self) -> list[Link]:
        """Start the agents."""
        worker = bundle.write(self._folder / "worker.pyz")
        for place in self.places:
            command = [*place.command, self._python, str(worker), "agent"]
            try:
                self._links.append(ProcessLink(command))
            except OSError as error:
                self.close()
                raise UsageError(
                    f"cannot start an agent on {place.name}: {error.strerror}",
                    cause=f"the command was: {' '.join(command)}",
                    remedy="check --host and --python",
                ) from None
        return list(self._links)

    def close(self) -> None:
        """End all agents."""
        for link in self._links:
            link.close()
        self._links.clear()
