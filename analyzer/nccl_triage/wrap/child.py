"""The command as a child in a process group of its own: started, sent our signals, waited for.

Signals that reach us are passed on to the group. The terminal stays ours, so that a pager behind us works, until
the command asks for it: reading from the terminal stops it with SIGTTIN, and then it becomes the foreground group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence

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


class Child:
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
    """Run in the child before the command: its own group, and no signal held back."""
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
