"""Asking for the end: the first signal lets what runs come to an end by itself, the second ends everything at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from nccl_triage import interrupts

_A = TypeVar("_A")
_T = TypeVar("_T")


class Stop:
    """Whether somebody asked for the end, and by which signal."""

    SIGNALS: Sequence[int] = interrupts.SIGNALS

    def __init__(self) -> None:
        self.asked: int | None = None

    def __call__(self, number: int, frame: object) -> None:
        """Take a signal."""
        if self.asked is not None:
            raise interrupts.Ended(number)
        self.ask(number)

    def ask(self, number: int) -> None:
        """Ask for the end; again is as good as once."""
        if self.asked is None:
            self.asked = number
            self._news()

    def _news(self) -> None:
        """React to the first signal, in whatever the main thread does at the moment."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals that ask for the end, those that are not ignored."""
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
    """Nobody waits any more for what a call was to give."""


class ReadingStop(Stop):
    """Ends reading: a call that waits for data is given up, whatever else runs comes to its own end."""

    #: Not the end of a terminal: nobody would see what was found until then.
    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        super().__init__()
        self._waits = False

    def call(self, function: Callable[[_A], _T], argument: _A) -> tuple[_T | None, bool]:
        """Return what a call gives and False; None and True once the end was asked for."""
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
