"""Work that may hang, as on a file system whose server is gone: waited for only so long, and Ctrl-C ends the waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class TooSlow(Exception):
    """The work is not done; it goes on where nobody waits for it, and ends with the program."""


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what the work returns, or raise what it raises; raises TooSlow when it takes longer.

    The kernel does not give a process back that waits for a dead file server, but it gives back its other threads.
    """
    results: list[Result] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run, name="history", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TooSlow
    if problems:
        raise problems[0]
    return results[0]
