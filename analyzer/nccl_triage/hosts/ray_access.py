"""Join a running Ray cluster without disturbing it, and leave it as it was."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from nccl_triage.errors import UsageError

#: Seconds to reach the port of the cluster's head.
_REACH = 5.0


class Access:
    """This process as a member of a cluster; ``ray`` is the module. ``leave`` keeps a connection that existed before."""

    def __init__(self, address: str | None) -> None:
        """Join the cluster; ``address`` as ``ray.init`` takes it (None: RAY_ADDRESS, or the cluster that runs here).

        Raises UsageError when Ray is missing, or when the cluster cannot be reached or is one of another version.
        """
        self.ray = _imported()
        self._joined = not self.ray.is_initialized()
        if not self._joined:
            return
        address = address or "auto"
        try:
            _reach(address)
            _silence(self.ray, True)
            with _own_signals():
                self.ray.init(
                    address=address, namespace="nccl-triage", logging_level=logging.CRITICAL, log_to_driver=False
                )
        except failures(self.ray) as error:
            self.leave()
            raise UsageError(
                "cannot join the Ray cluster at {address!r}",
                cause="{why}",
                why=reason(error),
                remedy="run this on a node of the cluster with the job's Python, Ray version and RAY_AUTH_* variables, "
                "or give the host:port of its head",
                address=address,
            ) from None

    def leave(self) -> None:
        """Leave the cluster if this object joined it."""
        if self._joined:
            self.ray.shutdown()
            _silence(self.ray, False)


def failures(ray: Any) -> tuple[type[Exception], ...]:
    """Return the exceptions that calls of Ray raise: its own, those of a lost connection, and those for refused addresses."""
    return (ray.exceptions.RayError, OSError, RuntimeError, ValueError)


def reason(error: Exception) -> str:
    """Return the sentence of a Ray error that names the reason; the whole message is long and coloured."""
    original = getattr(error, "cause", None)
    if isinstance(original, Exception):  # what a task raised, which Ray wraps
        return f"{type(original).__name__}: {original}"[:400]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if any(line.startswith("Traceback") for line in lines):
        return lines[-1][:400]
    if lines[0].endswith(":"):  # "Version mismatch: The cluster was started with:" and a list below it
        return " ".join(lines)[:400]
    return next((line for line in lines if "because" in line), lines[0])[:400]


def _imported() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            "Ray cannot be imported",
            cause="{why}",
            remedy="run this in the environment of the job's driver, or: pip install 'nccl-triage[ray]'",
            why=error,
        ) from None


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the handler of SIGTERM: Ray's ends a driver at once, with a fatal error when it waits."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _reach(address: str) -> None:
    """Raise OSError when nothing listens at the head node: Ray would retry for minutes and ignore Ctrl-C."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    host, _, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _REACH).close()


def _silence(ray: Any, silent: bool) -> None:
    """Keep Ray from printing the cluster's errors to our standard output, as its own debugger does.

    ``log_to_driver=False`` does not stop them: ``listen_error_messages`` of ray/_private/worker.py.
    """
    with contextlib.suppress(AttributeError):  # a Ray that is built otherwise
        ray._private.worker._worker_logs_enabled = not silent
