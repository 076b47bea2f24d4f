"""The program's end of ``asking``: reads one wish, prints answers, one JSON object a line, and ends whatever hangs.

When the standard input that brought the wish ends, nobody waits for the answers any more, and the program ends, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

_CHUNK = 1 << 16


class Answers:
    """Prints answers; several threads do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # What a login shell has printed may have no end of line.
        sys.stdout.buffer.write(b"\n")

    def say(self, answer: str, **values: Any) -> None:
        """Print one answer."""
        data = json.dumps({"answer": answer, **values}).encode() + b"\n"
        with self._lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def serve(carry_out: Callable[[dict[str, Any], Answers], None]) -> NoReturn:
    """Read the wish, have it carried out between the answers ``begun`` and ``done``, and end the process even if something hangs."""
    wish = json.loads(sys.stdin.buffer.readline())
    answers = Answers()
    answers.say("begun")
    threading.Thread(target=_end_unattended, daemon=True).start()
    carry_out(wish, answers)
    answers.say("done")
    _end()


def _end_unattended() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, _CHUNK):
            pass
    _end()


def _end() -> NoReturn:
    """End this process, and what it has started and waits for. Nothing is read here that a process of the job could hold up."""
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):
            for child in path.read_text(encoding="ascii").split():
                os.kill(int(child), signal.SIGKILL)
    os._exit(0)
