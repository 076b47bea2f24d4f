"""``--on-verdict``: run a command on every verdict, the report document on its standard input.

The command is the user's own words, split as a shell does and run without one. What logs say reaches it only through
its input and its environment. It gets some time, its failures are told, and following goes on whatever it does.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from nccl_triage.errors import UsageError
from nccl_triage.render.words import culprit_name, visible

#: Seconds that the command may take, and after which it is killed when it was told to end.
LIMIT, GRACE = 30.0, 2.0
#: Verdicts that wait while the command still runs for an earlier one.
MAX_WAITING = 8
_MAX_VALUE = 500


def command_words(text: str) -> list[str]:
    """Return the command as words; raises UsageError for one that cannot be run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError("--on-verdict cannot be understood", cause="{why}", why=error) from None
    if not words or shutil.which(words[0]) is None:
        raise UsageError(
            "--on-verdict: there is no command {name}",
            name=words[0] if words else "''",
            remedy="it is run without a shell; for pipes and variables write: --on-verdict \"sh -c '...'\"",
        )
    return words


def variables(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what the command finds in its environment."""
    best = (document.get("diagnoses") or [{}])[0] if document.get("verdict") == "diagnosed" else {}
    culprits = best.get("culprits") or []
    found = {
        "VERDICT": document.get("verdict"),
        "CAUSE": best.get("cause"),
        "CULPRIT": culprit_name(culprits[0], "en") if culprits else None,
        "CONFIDENCE": best.get("confidence"),
        "REASON": (document.get("follow") or {}).get("reason"),
    }
    return {f"NCCL_TRIAGE_{name}": "" if value is None else visible(value, _MAX_VALUE) for name, value in found.items()}


@dataclass(slots=True)
class _Run:
    process: subprocess.Popen[bytes]
    deadline: float
    told: bool = False


@dataclass(slots=True)
class Hook:
    """Runs the command for one verdict after the other; ``tell`` says what went wrong."""

    words: list[str]
    tell: Callable[..., None]
    limit: float = LIMIT
    _waiting: deque[tuple[bytes, dict[str, str]]] = field(default_factory=deque)
    _run: _Run | None = None

    def call(self, document: bytes, environment: dict[str, str]) -> None:
        """Run the command, now or when it has ended for the verdict before."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.tell("--on-verdict: the command is too slow; a verdict was left out")
        self._waiting.append((document, environment))
        self.poll()

    def poll(self) -> None:
        """See whether the command has ended or takes too long, and start it for what waits."""
        if self._run is not None:
            self._watch(self._run)
        if self._run is None and self._waiting:
            self._start(*self._waiting.popleft())

    def finish(self) -> None:
        """Wait until all verdicts were handed over; each still has its time."""
        while self._run is not None or self._waiting:
            self.poll()
            time.sleep(0.02)

    def kill(self) -> None:
        """End the command, if it runs, at once."""
        self._waiting.clear()
        if self._run is not None:
            _signal(self._run.process, signal.SIGKILL)
            self._run.process.wait()
            self._run = None

    def _start(self, document: bytes, environment: dict[str, str]) -> None:
        try:
            # A file, since a pipe would wait for a command that does not read it.
            with tempfile.TemporaryFile() as stdin:
                stdin.write(document)
                stdin.seek(0)
                self._run = _Run(self._spawn(stdin, environment), time.monotonic() + self.limit)
        except OSError as error:
            self.tell("--on-verdict: the command cannot be run ({reason})", reason=error.strerror or error)

    def _spawn(self, stdin: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # Standard output is for verdicts; a session of its own, so that Ctrl-C does not end it in the middle.
        return subprocess.Popen(
            self.words, stdin=stdin, stdout=2, env={**os.environ, **environment}, start_new_session=True
        )

    def _watch(self, run: _Run) -> None:
        code = run.process.poll()
        if code is not None:
            self._run = None
            if code and not run.told:
                self.tell("--on-verdict: the command failed with exit code {code}", code=code)
        elif time.monotonic() > run.deadline:
            if run.told:
                _signal(run.process, signal.SIGKILL)
                return
            self.tell("--on-verdict: the command took longer than {limit} s and was ended", limit=f"{self.limit:g}")
            run.told, run.deadline = True, time.monotonic() + GRACE
            _signal(run.process, signal.SIGTERM)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the command and what it has started."""
    try:
        os.killpg(process.pid, number)
    except OSError:
        return
