"""Graceful stop: the first signal lets running work finish by itself, the second ends everything at once."""

from __future__ import annotations

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
        """Handle the signals that request a stop, except those that are ignored."""
        before = {number: signal.getsignal(number) for number in self.SIGNALS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


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
