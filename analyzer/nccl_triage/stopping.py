"""Graceful stop: the first signal lets running work finish by itself, the second ends everything at once."""

from __future__ import annotations

import select
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from nccl_triage import interrupts

_A = TypeVar("_A")
_T = TypeVar("_T")


class Stop:
    """Whether a stop was requested, and by which signal."""

    SIGNALS: Sequence[int] = interrupts.SIGNALS

    def __init__(self) -> None:
        self.asked: int | None = None

    def __call__(self, number: int, frame: object) -> None:
        """Take a signal."""
        if self.asked is not None:
            raise interrupts.Ended(number)
        self.ask(number)

    def ask(self, number: int) -> None:
        """Request a stop; further requests change nothing."""
        if self.asked is None:
            self.asked = number
            self._news()

    def _news(self) -> None:
        """React to the first request; runs in the main thread, wherever it is."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals that request a stop, except those that are ignored; one may have come before."""
        before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                ours = number in self.SIGNALS
                signal.signal(number, self if ours else interrupts.after_listening(handler))  # type: ignore[arg-type]
        early = interrupts.early()
        if early is not None and early in self.SIGNALS:
            self.ask(early)
        elif early is not None:
            raise interrupts.Ended(early)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, interrupts.after_listening(handler))  # type: ignore[arg-type]


class _Enough(BaseException):
    """Raised inside a waiting call to give it up."""


class ReadingStop(Stop):
    """Stops reading: a call that waits for data is given up, other work finishes by itself."""

    #: Without SIGHUP: after the terminal closed nobody would see the partial result.
    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        super().__init__()
        self._waits = False

    def call(self, function: Callable[[_A], _T], argument: _A) -> tuple[_T | None, bool]:
        """Return the result of a call and False, or None and True once a stop was requested."""
        if self.asked is not None:
            return None, True
        try:
            return self._waited(function, argument), False
        except _Enough:
            return None, True

    def wait(self, descriptor: int) -> bool:
        """Wait until a pipe has data or has ended. Once a stop was requested tell at once whether it has.

        Only the waiting is given up: a call that reads, once begun, loses nothing of what it has read.
        """
        pipe = select.poll()
        pipe.register(descriptor, select.POLLIN)
        ready, ended = self.call(pipe.poll, None)
        return bool(pipe.poll(0) if ended else ready)

    def _waited(self, function: Callable[[_A], _T], argument: _A) -> _T:
        try:
            self._waits = True
            if self.asked is not None:  # between the first look and this one
                raise _Enough
            return function(argument)
        finally:
            self._waits = False

    def _news(self) -> None:
        if self._waits:
            raise _Enough
