"""Explains the exception that ends a rank: a hook for uncaught exceptions, also usable as ``with`` and as a decorator.

Who reports. The first rank of a host that fails does, not local rank 0: launchers stop the other ranks with SIGTERM as
soon as one has exited, or they wait in a collective until they are killed, so rank 0 often never sees an exception, and
a handler for SIGTERM would change how the job stops. Ranks that fail meanwhile add their tracebacks and wait for the
report, since the exit of any of them makes the launcher stop all.

What is not seen: a process that is killed, or that C++ aborts (NCCL's watchdog does), runs no Python any more, an
exception in a thread ends no process, and ``multiprocessing`` catches those of its children, for which there is the
decorator. ``nccl-triage run`` around the launcher sees them all.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

#: Seconds that the diagnosis may take before it is killed.
DEADLINE = 60.0
#: How a program is stopped rather than fails.
_STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit)
#: Marks an exception that has been explained, perhaps by a callback of the trainer.
_MARK = "_nccl_triage_explained"


def absolute(logs: str | os.PathLike[str]) -> str:
    """Return an absolute path, since the job may change its folder; a folder that is gone is no reason to fail."""
    try:
        return str(Path(logs).absolute())
    except OSError:
        return str(logs)


class FailureHook(contextlib.ContextDecorator):
    """Explains exceptions until it is uninstalled; made by ``explain_failures``."""

    def __init__(self, logs: str | os.PathLike[str], redact: bool = False, deadline: float = DEADLINE) -> None:
        self._logs = absolute(logs)
        self._redact = redact
        self._deadline = deadline
        self._process = os.getpid()
        self._installed_at = time.time()
        self._hook = self._see
        self._previous = sys.excepthook

    def install(self) -> Self:
        """Put this in front of ``sys.excepthook``."""
        if sys.excepthook is not self._hook:
            self._previous = sys.excepthook
            sys.excepthook = self._hook
        return self

    def uninstall(self) -> None:
        """Restore the hook that was there before, unless another one has been installed since."""
        if sys.excepthook is self._hook:
            sys.excepthook = self._previous

    def __enter__(self) -> Self:
        return self.install()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()
        if error is not None:
            self.explain(error)

    def explain(self, error: BaseException, rank: int | None = None, *, at_exit: bool = False) -> None:
        """Write the diagnosis of a failure, once for each exception; raises nothing and takes a bounded time.

        ``rank`` is the global one; without it the environment or torch says which it is. With ``at_exit`` the report is
        waited for only when the interpreter ends.
        """
        try:
            # A forked child, such as a worker of a DataLoader, has the hook too, and is no rank.
            if isinstance(error, _STOPS) or os.getpid() != self._process or getattr(error, _MARK, False):
                return
            with contextlib.suppress(AttributeError):
                setattr(error, _MARK, True)
            from nccl_triage.integrations import reporting

            where = reporting.ReportPlace(self._logs, reporting.started() or self._installed_at)
            who = reporting.rank() if rank is None else rank
            work = reporting.start(where, {who: error}, self._redact, self._deadline)
            if at_exit:
                atexit.register(work.wait)
            else:
                work.wait()
        except BaseException:
            # The program ends with its own exception, whatever happened here.
            return

    def _see(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            self._previous(kind, error, trace)
        finally:
            # Not waited for here: init_process_group puts a hook in front of this one that prints the traceback when
            # this one has returned.
            self.explain(error, at_exit=True)


def explain_failures(logs: str | os.PathLike[str], *, redact: bool = False, deadline: float = DEADLINE) -> FailureHook:
    """Write a diagnosis into ``logs``, a folder or a file in one, if this rank ends with an uncaught exception.

    Call it before or after ``init_process_group``, whose failures are explained too, use it as ``with
    explain_failures(logs):``, or as a decorator. Nothing is written or started before a failure. Each failed rank saves
    its traceback as ``nccl-triage-HOST-rankN.log``; the first of a host writes ``nccl-triage-HOST.html`` and ``.txt``,
    or ``nccl-triage-HOST-2.html`` if there are files of an earlier run. The analysis runs in a process of low priority;
    the rank waits for it for ``deadline`` seconds at most. ``redact`` replaces names in the report, not in the logs.
    """
    return FailureHook(logs, redact, deadline).install()
