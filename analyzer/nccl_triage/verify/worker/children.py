"""Child processes: each rank in a session of its own, and none that outlives its parent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from nccl_triage.hosts.probes.children import own
from nccl_triage.hosts.probes.host import die_with_parent


def spawned(
    spec: dict[str, Any], rank: int, log: int | IO[bytes], marks: int, control: int, keep: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a rank that imports torch for itself; raises OSError, TypeError or ValueError for what cannot be started.

    ``keep`` are further descriptors that it inherits.
    """
    return subprocess.Popen(
        [*own(), "rank", str(rank), str(marks), str(control)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, "VERIFY_SPEC": json.dumps(spec), **spec.get("env", {})},
        pass_fds=(marks, control, *keep),
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def forked(spec: dict[str, Any], rank: int, log: int, marks: int, control: int, keep: tuple[int, ...] = ()) -> int:
    """Start a rank that has what this process has imported; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        die_with_parent()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _keep_only({0, 1, 2, marks, control, *keep})
        from .rank import run

        code = run(spec, rank, marks, control)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _keep_only(descriptors: set[int]) -> None:
    """Close what else was inherited: a pipe of another rank would hide that rank's end."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) not in descriptors:
            with contextlib.suppress(OSError):
                os.close(int(entry.name))


def waited(pid: int, timeout: float = 2.0) -> int | None:
    """Return the exit status of a child as subprocess has it (negative: signal); kill it when it lingers."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            deadline += 3600
        time.sleep(0.002)
