"""Programs as child processes, on this host or on others through a command such as ``ssh NAME``.

Each gets its code through the command's standard input (``programs``): no file is written, here or there. When the line to
it is cut, it ends what it has started once the command's other side (sshd, the kubelet) closes the input.
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
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from nccl_triage.hosts import programs, safe_path
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.programs import Program
from nccl_triage.lazy_regex import lazily

#: Seconds a program gets to end what it has started after its input was closed.
FAREWELL = 2.0
#: Seconds to reach a host. Hosts that are being reached at once: from the tenth connection on that has not logged in, sshd
#: refuses some (``MaxStartups``), and all may go through one jump host.
REACH, CONNECTING = 30.0, 8
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
    """A program behind the pipes of a child process, to which its code is written before any command."""

    def __init__(self, command: Sequence[str], payload: bytes = b"") -> None:
        # A file, not a pipe: nobody reads it until the end, and a full pipe would stop the program.
        self._errors = _in_memory()
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
        # A thread writes: the code is larger than a pipe, and a host that does not answer does not read either.
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._outgoing.put(payload)
        threading.Thread(target=self._write, daemon=True).start()

    def send(self, command: Mapping[str, Any]) -> None:
        """Write one command, never waiting; a broken pipe is left to ``receive``."""
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
                        found.append(json.loads(line))
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
        """Close the program's input, which ends it."""
        self._outgoing.put(None)

    def close(self, seconds: float = FAREWELL) -> None:
        """End the program; when it lingers for these seconds, kill it and the command that reaches it."""
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
    """A program on each host, the child of this process or of the command that reaches the host.

    ``python`` runs it on hosts behind commands, ``here`` on this one (default: the running one).
    """

    at_once, reach = CONNECTING, REACH

    def __init__(
        self, places: Sequence[HostPlace], program: Program, python: str | None = None, here: str | None = None
    ) -> None:
        self.places = places
        self._program, self._payload = program, program.payload
        self._python, self._here = python or sys.executable, here or sys.executable
        self._links: list[ProcessLink] = []

    def open(self, place: int) -> ProcessLink:
        """See ``Launcher``."""
        command, program = self.places[place].command, self._program
        words = (*program.words, *program.away) if command else program.words
        started = programs.boot_command(command, self._python if command else self._here, words)
        self._links.append(ProcessLink(started, self._payload))
        return self._links[-1]

    def ready(self) -> None:
        """Wait for nothing: whether they start, the links tell."""

    def reserve(self, gpus: Mapping[int, int]) -> dict[int, str]:
        """Reserve nothing: whoever starts processes on a host may use its GPUs."""
        return {}

    def end(self) -> None:
        """See ``Launcher``; many hosts may not answer."""
        links, self._links = self._links, []
        for link in links:
            link.hang_up()
        farewell = time.monotonic() + FAREWELL
        for link in links:
            link.close(max(0.0, farewell - time.monotonic()))

    def close(self) -> None:
        """End all programs."""
        self.end()
