"""Children that run this program again are forked: torch, once imported, is there; the rest is as in a fresh process."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PIPE, DEVNULL, STDOUT = -1, -3, -2


def own_words(arguments: Any) -> list[str] | None:
    """Return the words after the program's file where a command starts this program again."""
    if not isinstance(arguments, (list, tuple)) or not arguments or arguments[0] != sys.executable:
        return None
    words = [str(word) for word in arguments[1:]]
    while words and words[0].startswith("-") and words[0] not in ("-c", "-m"):
        del words[0]
    return words[1:] if words and words[0] == sys.argv[0] != "-c" else None


def install(subprocess: Any) -> None:
    """Let ``subprocess.Popen`` fork where a command starts this program again."""
    real = subprocess.Popen

    class Popen(real):  # type: ignore[misc]
        """The real one, but for this program itself."""

        def __new__(cls, arguments: Any, *more: Any, **options: Any) -> Any:
            words = own_words(arguments) if not more else None
            if words is None:
                return super().__new__(cls)
            return Forked(words, subprocess, **options)

    subprocess.Popen = Popen


class Forked:
    """A child with the attributes and methods of subprocess.Popen that are in use."""

    def __init__(
        self,
        words: Sequence[str],
        subprocess: Any,
        *,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        preexec_fn: Callable[[], None] | None = None,
        start_new_session: bool = False,
        **others: Any,
    ) -> None:
        self._subprocess, self.args, self.returncode = subprocess, list(words), None
        for value in (env or {}).items():
            if not all(isinstance(part, str) and "\0" not in part for part in value):
                raise ValueError("embedded null byte")
        ends = [_ends(given, number) for number, given in enumerate((stdin, stdout, stderr))]
        self.pid = os.fork()
        if self.pid == 0:
            _child(words, [there for _, there in ends], stderr == STDOUT, env, pass_fds, preexec_fn, start_new_session)
        for given, (_, there) in zip((stdin, stdout, stderr), ends, strict=True):
            if given in (PIPE, DEVNULL) and there is not None:
                os.close(there)
        modes = ("wb", "rb", "rb")
        pipes = [
            os.fdopen(here, mode) if here is not None else None for (here, _), mode in zip(ends, modes, strict=True)
        ]
        self.stdin, self.stdout, self.stderr = pipes

    def poll(self) -> int | None:
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                done, status = os.waitpid(self.pid, os.WNOHANG)
                if done:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise self._subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.005)
        return self.returncode  # type: ignore[return-value]

    def communicate(
        self, input: bytes | None = None, timeout: float | None = None
    ) -> tuple[bytes | None, bytes | None]:
        if self.stdin is not None:
            with contextlib.suppress(OSError):
                self.stdin.write(input or b"")
                self.stdin.close()
        end = None if timeout is None else time.monotonic() + timeout
        found = b""
        while self.stdout is not None:
            left = None if end is None else max(0.0, end - time.monotonic())
            ready = _ready(self.stdout.fileno(), left)
            if not ready:
                raise self._subprocess.TimeoutExpired(self.args, timeout)
            data = os.read(self.stdout.fileno(), 1 << 16)
            if not data:
                break
            found += data
        self.wait(None if end is None else max(0.0, end - time.monotonic()))
        return (found if self.stdout is not None else None), None

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _ready(descriptor: int, timeout: float | None) -> bool:
    import select

    return bool(select.select([descriptor], [], [], timeout)[0])


def _ends(given: Any, number: int) -> tuple[int | None, int | None]:
    """Return our end and the child's of one of its standard files."""
    if given is None or given == STDOUT:
        return None, None
    if given == DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    if given == PIPE:
        reading, writing = os.pipe()
        return (writing, reading) if number == 0 else (reading, writing)
    return None, given if isinstance(given, int) else given.fileno()


def _child(
    words: Sequence[str],
    files: Sequence[int | None],
    joined: bool,
    env: Mapping[str, str] | None,
    kept: Sequence[int],
    preexec: Callable[[], None] | None,
    new_session: bool,
) -> None:
    code = 1
    try:
        if new_session:
            os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for number, descriptor in enumerate(files):
            if descriptor is not None:
                os.dup2(descriptor, number)
        if joined:
            os.dup2(1, 2)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        close_all_but({0, 1, 2, *kept})
        if preexec is not None:
            preexec()
        run([sys.argv[0], *words])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def close_all_but(descriptors: set[int]) -> None:
    """Close what was inherited."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) not in descriptors:
            with contextlib.suppress(OSError):
                os.close(int(entry.name))


def run(argv: Sequence[str]) -> None:
    """Run a program's file in this process as if it had just started; its own modules are imported anew."""
    sys.argv = list(argv)
    for name in [name for name in sys.modules if name.partition(".")[0] == "nccl_triage"]:
        del sys.modules[name]
    runpy.run_path(argv[0], run_name="__main__")
