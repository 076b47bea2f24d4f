"""The way of the output: from the command through a pipe or a pseudo-terminal to where it would have gone.

A stream that would have gone to a terminal gets a pseudo-terminal, so that the command still prints colours and
progress bars; any other gets a pipe, as a shell's pipe would be. Where standard output and error lead to the same
place they share one channel, and their order is exactly that of the command.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nccl_triage.wrap.keep import Keeper, write_all

#: Seconds that output is still awaited after the command has ended: a process that it left behind may hold the pipe.
PATIENCE = 5.0
_CHUNK = 1 << 16
#: Bytes that a pipe holds at most (/proc/sys/fs/pipe-max-size).
_CAPACITY = 1 << 20
#: The reader has gone: the command must learn of it, as it would without us.
_GONE = (errno.EPIPE, errno.EIO, errno.ECONNRESET, errno.EBADF)


@dataclass(slots=True)
class Channel:
    """One way: the command writes to ``entry``, we read from ``exit_`` and write to ``target``."""

    entry: int
    exit_: int
    target: int
    terminal: bool


def resize(channels: Iterable[Channel]) -> None:
    """Give the pseudo-terminals the size of the real one."""
    import fcntl
    import termios

    for channel in channels:
        if channel.terminal:
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(channel.target, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(channel.exit_, termios.TIOCSWINSZ, size)


def open_channels(pty: bool) -> tuple[Channel, Channel]:
    """Return the channels of standard output and standard error; they are the same where both lead to one place."""
    first = _open(1, pty)
    if os.path.samestat(os.fstat(1), os.fstat(2)):
        return first, first
    return first, _open(2, pty)


def _open(target: int, pty: bool) -> Channel:
    if not (pty and os.isatty(target)):
        exit_, entry = os.pipe()
        return Channel(entry, exit_, target, False)
    import termios

    exit_, entry = os.openpty()
    with contextlib.suppress(termios.error):
        settings = termios.tcgetattr(target)
        # The real terminal turns newlines into what it needs; twice would change the bytes.
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(entry, termios.TCSANOW, settings)
    channel = Channel(entry, exit_, target, True)
    resize([channel])
    return channel


class Pumps:
    """Threads that move the output, one a channel: a reader of one stream that sleeps does not stop the other."""

    def __init__(self, channels: tuple[Channel, Channel], keeper: Keeper, failed: Callable[[OSError], None]) -> None:
        """Tell ``failed`` once of an output that cannot be written, such as a file on a full disk."""
        self._keeper = keeper
        self._failed = failed
        self.reader_left = False
        self._deadline: float | None = None
        self._ended, self._end = os.pipe()
        self._threads = [
            threading.Thread(target=self._pump, args=(channel,), daemon=True)
            for channel in {channel.target: channel for channel in channels}.values()
        ]

    def start(self) -> None:
        """Begin to move bytes; signals stay with the main thread, which waits for the command."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            for thread in self._threads:
                thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def finish(self) -> None:
        """Wait until everything that the command wrote has been moved, however slow its reader is."""
        self._deadline = time.monotonic() + PATIENCE
        os.close(self._end)
        for thread in self._threads:
            thread.join()
        os.close(self._ended)

    def _pump(self, channel: Channel) -> None:
        told = False
        for data in self._chunks(channel.exit_):
            self._keeper.write(channel.target, data)
            try:
                write_all(channel.target, data)
            except OSError as error:
                if error.errno in _GONE:
                    self.reader_left = True
                    break
                if not told:
                    told = True
                    self._failed(error)
        os.close(channel.exit_)

    def _chunks(self, source: int) -> Iterator[bytes]:
        """Yield what can be read until the last writer is gone, or the command is and the patience with the others."""
        waiting = select.poll()
        waiting.register(source, select.POLLIN)
        waiting.register(self._ended, 0)
        after_end = 0
        while True:
            timeout = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            ready = dict(waiting.poll(None if timeout is None else timeout * 1000))
            if source in ready:
                data = _read(source)
                if not data:
                    return
                yield data
            if self._deadline is not None:
                after_end += len(data) if source in ready else 0
                with contextlib.suppress(KeyError):
                    waiting.unregister(self._ended)
                # What was written before the end fits into a pipe.
                if timeout == 0.0 and (source not in ready or after_end > _CAPACITY):
                    return


def _read(source: int) -> bytes:
    try:
        return os.read(source, _CHUNK)
    except OSError as error:
        if error.errno == errno.EIO:  # how a pseudo-terminal says that its other end is closed
            return b""
        raise
