"""Agents as child processes, on this host or on others through a command such as ``ssh NAME``.

A host behind a command gets the worker through the command's standard input (``bundle``) and sends the ranks' logs with its
answers: it need not share a folder with this one. When the line to it is cut, its agent ends its ranks once the command's
other side (sshd, the kubelet) closes the input.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from nccl_triage.errors import UsageError
from nccl_triage.lazy_regex import lazily
from nccl_triage.verify.collective_run import HostPlace
from nccl_triage.verify.launchers import AgentLink, bundle
from nccl_triage.verify.launchers.bundle import RankLogs
from nccl_triage.verify.worker import safe_path

#: Seconds an agent gets to kill its ranks after its input was closed.
FAREWELL = 2.0
_CHUNK = 1 << 16
#: Chunks that are read at once: whatever talks without end must not keep the deadlines from being looked at.
_CHUNKS = 16
#: What kubectl exec and srun say after the words that tell why.
_AFTERWORD = lazily(
    r"command terminated with exit code \d+"
    r"|srun: (?:Job step aborted|Terminating StepId=|Force Terminated|error: Application launch failed"
    r"|error: \S+: task \d+: Exited with exit code)"
)


def _in_memory() -> IO[bytes]:
    """Return a file that needs no folder, where the system has such files: /tmp may be full."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("errors"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


class ProcessLink:
    """An agent behind the pipes of a child process, to which the worker is written before any command.

    What the process says on standard error is kept in ``folder``, or in memory.
    """

    def __init__(self, command: Sequence[str], folder: Path | None, payload: bytes = b"") -> None:
        # A file, not a pipe: nobody reads it until the end, and a full pipe would stop the agent.
        self._errors = tempfile.TemporaryFile(dir=folder) if folder is not None else _in_memory()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=safe_path.environment(os.environ),
                start_new_session=True,
            )
        except BaseException:
            self._errors.close()
            raise
        assert self._process.stdout is not None and self._process.stdin is not None
        self._out = self._process.stdout
        self._in = self._process.stdin
        os.set_blocking(self._out.fileno(), False)
        self._rest = b""
        self._gone = False
        self._logs = RankLogs()
        # A thread writes: the worker is larger than a pipe, and a host that does not answer does not read either.
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._outgoing.put(payload)
        threading.Thread(target=self._write, daemon=True).start()

    def send(self, command: Mapping[str, Any]) -> None:
        """Write one command, never waiting; a broken pipe is left to ``receive``."""
        self._logs.note(command)
        self._outgoing.put(json.dumps(command).encode() + b"\n")

    def _write(self) -> None:
        with contextlib.suppress(OSError), self._in as pipe:
            for data in iter(self._outgoing.get, None):
                pipe.write(data)
                pipe.flush()

    def receive(self) -> list[dict[str, Any]]:
        """Return the answers that have arrived; what is no answer (a banner of the host) is passed over."""
        found: list[dict[str, Any]] = []
        for _ in range(_CHUNKS):
            if self._gone:
                break
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
                if line.startswith(b"{"):
                    with contextlib.suppress(ValueError, RecursionError):
                        found.append(self._logs.unpack(json.loads(line)))
        return found

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(FAREWELL)
        return self.said() or f"exit code {self._process.returncode}"

    def said(self) -> str:
        """Return the last line that tells why on standard error, up to now."""
        # The process may still write: its place in the file is shared, and must not move.
        number = self._errors.fileno()
        data = os.pread(number, _CHUNK, max(0, os.fstat(number).st_size - _CHUNK))
        lines = data.decode(errors="replace").strip().splitlines()
        told = [line for line in lines if line.strip() and not _AFTERWORD.match(line)] or lines
        return told[-1][:400] if told else ""

    def descriptor(self) -> int:
        """Return the pipe's descriptor."""
        return self._out.fileno()

    def hang_up(self) -> None:
        """Close the agent's input, which ends it."""
        self._outgoing.put(None)

    def close(self, seconds: float = FAREWELL) -> None:
        """End the agent; when it lingers for these seconds, kill it and the command that reaches it."""
        self.hang_up()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            # Behind sudo it belongs to somebody else, who has seen the end of its input.
            with contextlib.suppress(PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(FAREWELL)
        self._out.close()
        self._errors.close()


class ProcessLauncher:
    """One agent per host, each the child of this process or of the command that reaches the host.

    ``python`` is the interpreter that has torch, ``folder`` takes the worker and the ranks' logs; only agents without a
    command use it themselves.
    """

    def __init__(self, places: Sequence[HostPlace], folder: Path, python: str | None = None) -> None:
        self.places = places
        self._folder = folder
        self._python = python or sys.executable
        self._links: list[ProcessLink] = []

    def open(self) -> list[AgentLink]:
        """Start the agents."""
        worker = bundle.write(self._folder / "worker.pyz")
        payload = bundle.boot_payload(worker.read_bytes())
        for place in self.places:
            away = bool(place.command)
            command = bundle.boot_command(place.command, self._python) if away else [self._python, str(worker), "agent"]
            try:
                self._links.append(ProcessLink(command, self._folder, payload if away else b""))
            except OSError as error:
                self.close()
                raise UsageError(
                    "cannot start an agent on {name}: {why}",
                    cause="the command was: {command}",
                    remedy="check --host and --python",
                    name=place.name,
                    why=error.strerror,
                    command=" ".join([*place.command, self._python]),
                ) from None
        return list(self._links)

    def reserve(self, gpus: Mapping[int, int]) -> dict[int, str]:
        """Reserve nothing: whoever starts processes on a host may use its GPUs."""
        return {}

    def close(self) -> None:
        """End all agents, all at once."""
        for link in self._links:
            link.hang_up()
        for link in self._links:
            link.close()
        self._links.clear()
