"""Runs the wrapped command in a process group of its own, and passes its output on.

Signals that reach us are forwarded to the group. We keep the terminal, so that a pager behind us works, until the command
reads from it: that stops the command with SIGTTIN, and its group is then put in the foreground.

An output stream that leads to a terminal goes through a pseudo-terminal, so that the command still prints colours and
progress bars; any other goes through a pipe. Where standard output and error lead to the same place they share one
channel, which keeps their order.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from nccl_triage.wrap.keep import Keeper, write_all

#: Seconds to wait for output after the command has ended: a process that it left behind may hold the pipe.
DRAIN_TIMEOUT = 5.0
_CHUNK = 1 << 16
#: Bytes that a pipe holds at most (/proc/sys/fs/pipe-max-size).
_CAPACITY = 1 << 20
#: Whether the reader is gone, of which the command must learn as it would without us.
_GONE = (errno.EPIPE, errno.EIO, errno.ECONNRESET, errno.EBADF)


@dataclass(slots=True)
class Channel:
    """One output channel: the command writes to ``entry``, we read from ``exit_`` and write to ``target``."""

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
    """Threads that move the output, one per channel, so that a slow reader of one stream does not stop the other."""

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
        self._deadline = time.monotonic() + DRAIN_TIMEOUT
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
        """Yield the output until the last writer is gone, or for ``DRAIN_TIMEOUT`` after the end of the command."""
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


#: What is passed on. SIGKILL and SIGSTOP cannot be.
FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
)
_HANDLED = (*FORWARDED, signal.SIGTSTP)


class WrappedCommand:
    """A running command; its process group has the number of its process."""

    def __init__(self, words: Sequence[str], stdout: int, stderr: int, resized: Callable[[], None]) -> None:
        """Start it; ``resized`` is called when the terminal's size has changed. Raises OSError if that fails."""
        self._resized = resized
        self._foreground = False
        # Nothing may arrive between the start of the command and the moment when we can pass it on.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            self._process = subprocess.Popen(
                words, stdout=stdout, stderr=stderr, close_fds=True, preexec_fn=_prepare, bufsize=0
            )
            self._install()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)

    def _install(self) -> None:
        for number in FORWARDED:
            # What was ignored (nohup, a background job) is ignored by the command too.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._forward)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            signal.signal(signal.SIGTSTP, self._suspend)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or taking the terminal back would stop us

    def _forward(self, number: int, frame: object) -> None:
        if number == signal.SIGWINCH:
            self._resized()
        self._send(number)

    def _send(self, number: int) -> None:
        if self._process.returncode is not None:  # its number may belong to somebody else by now
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _suspend(self, number: int, frame: object) -> None:
        """Ctrl-Z: the command stops, then we do; when we are woken, so is the command."""
        self._send(signal.SIGTSTP)
        self._stop_ourselves()

    def _stop_ourselves(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._foreground:
            self._hand_over()
        self._send(signal.SIGCONT)

    def wait(self) -> int:
        """Return the exit code of the command, 128 + N after signal N."""
        while True:
            _, status = os.waitpid(self._process.pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                self._stopped(os.WSTOPSIG(status))
                continue
            code = os.waitstatus_to_exitcode(status)
            self._process.returncode = code
            self._take_back()
            return code if code >= 0 else 128 - code

    def _stopped(self, number: int) -> None:
        if number in (signal.SIGTTIN, signal.SIGTTOU):
            if self._hand_over():
                self._send(signal.SIGCONT)
            else:  # we are in the background ourselves
                self._stop_ourselves()
        elif number == signal.SIGTSTP and self._foreground:
            self._take_back()
            self._foreground = True
            self._stop_ourselves()

    def _hand_over(self) -> bool:
        """Make the command the terminal's foreground group; False when the terminal is not ours to give."""
        try:
            if os.tcgetpgrp(0) != os.getpgrp():
                return False
            os.tcsetpgrp(0, self._process.pid)
        except OSError:
            return False
        self._foreground = True
        return True

    def _take_back(self) -> None:
        if self._foreground:
            self._foreground = False
            with contextlib.suppress(OSError):
                os.tcsetpgrp(0, os.getpgrp())


def _prepare() -> None:
    """Run in the child before the command: create its process group and unblock signals."""
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
