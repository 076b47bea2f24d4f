"""Signals that end the program: a sentence on stderr, a shell's exit code, and no half-written files.

``listen`` remembers the first signal: a command that reads a pipe still diagnoses what the pipe holds, ``take_over``
lets every other command end there. From then on signals raise, so that open files are closed and half-written ones are
removed. A signal that the caller ignores stays ignored. This module is imported first, so it imports nothing expensive.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from multiprocessing.process import BaseProcess

#: Ctrl-C, termination by a scheduler, a closed terminal.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: As shells do: the exit code of a process that signal N ended is 128 + N.
_BASE = 128


#: The signal that came while ``listen`` was in force.
_early: int | None = None


class Ended(KeyboardInterrupt):
    """A signal asks the program to end; a subclass of KeyboardInterrupt, so that the same code cleans up."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = number


def code_of(error: BaseException) -> int:
    """Return the exit code of an interrupt."""
    return _BASE + (error.number if isinstance(error, Ended) else signal.SIGINT)


def name_of(error: BaseException) -> str | None:
    """Return the name of the signal, None for Ctrl-C."""
    number = code_of(error) - _BASE
    return None if number == signal.SIGINT else signal.Signals(number).name


def _set(handler: object) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)  # type: ignore[arg-type]


def listen() -> None:
    """Remember the first signal; the second ends the process at once, with a sentence on stderr."""
    global _early
    _early = None
    sys.unraisablehook = _unraisable
    _set(_remember)


def early() -> int | None:
    """Return the signal that came while ``listen`` was in force."""
    return _early


def after_listening(handler: object) -> object:
    """Return the handler that takes the place of another one: signals that were remembered raise from now on."""
    return _raise if handler is _remember else handler


def take_over() -> None:
    """Let the signals raise ``Ended`` from here on, and raise the one that came before; without ``listen`` do nothing."""
    listening = [number for number in SIGNALS if signal.getsignal(number) is _remember]
    for number in listening:
        signal.signal(number, _raise)
    if listening and _early is not None:
        raise Ended(_early)


def ignore() -> None:
    """Ignore further signals while the program ends; does nothing unless ``take_over`` was called."""
    if signal.getsignal(signal.SIGTERM) is _raise:
        _set(signal.SIG_IGN)


def _workers() -> Iterable[BaseProcess]:
    """Return the processes of ``multiprocessing`` that this one has started."""
    pools = sys.modules.get("multiprocessing")
    return pools.active_children() if pools is not None else ()


def ask_workers() -> None:
    """Ask the worker processes for what they have so far."""
    for child in _workers():
        child.terminate()


def stop_workers() -> None:
    """Kill the worker processes; their results are no longer wanted."""
    for child in _workers():
        child.kill()


def in_worker(ask: Callable[[int], None]) -> None:
    """Set the signals of a worker process: it ignores Ctrl-C, since its parent gets it too, and calls ``ask`` on SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda number, frame: ask(number))


def _remember(number: int, frame: object) -> None:
    global _early
    if _early is not None:
        _leave(number, frame)
    _early = number


def _leave(number: int, frame: object) -> None:
    with contextlib.suppress(OSError):  # nobody listens
        word = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        os.write(2, f"{word}\n".encode())
    os._exit(_BASE + number)


def _raise(number: int, frame: object) -> None:
    # orjson crashes when what it imports at its own start raises; nothing is open yet then.
    start = getattr(sys.modules.get("orjson"), "__spec__", None)
    if getattr(start, "_initializing", False):
        _leave(number, frame)
    raise Ended(number)


def _unraisable(problem: sys.UnraisableHookArgs) -> None:
    """End the process when an interrupt came where nothing can raise; Python would print a traceback and go on."""
    if isinstance(problem.exc_value, Ended):
        _leave(problem.exc_value.number, None)
    sys.__unraisablehook__(problem)
