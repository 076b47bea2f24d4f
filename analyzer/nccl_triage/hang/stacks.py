"""The stacks of processes, read without stopping them, and what the kernel says of a process whose stack cannot be read.

``py-spy dump --nonblocking`` reads the memory of a process while it goes on: it is never paused, at the price of a stack that
may be torn while it runs. A process that hangs does not run. It needs what ptrace needs (``man ptrace``, "Ptrace access mode
checking"): the same user, and no Yama or container in between. Without it /proc still tells the state and the system call.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nccl_triage.hang.processes import TICKS, HostProcess

#: Seconds that one dump may take, and tries: a stack may be torn while a process runs.
DUMP, TRIES = 10.0, 2
#: Characters of a dump at most.
_MOST = 1 << 20
_GPU = re.compile(r"/dev/(?:nvidia\d|kfd$|davinci\d)")


class Unseen(Exception):
    """Something cannot be taken: ``why`` is one of ``words.WHY``."""

    def __init__(self, why: str, **values: object) -> None:
        super().__init__(why)
        self.why = why
        self.values = {name: str(value)[:300] for name, value in values.items()}


def py_spy(process: HostProcess) -> str | None:
    """Return the path of py-spy: on PATH, beside this Python, or beside that of the process; None where there is none.

    What lies beside the process's Python is run only if it belongs to root or to the user who asks.
    """
    found = shutil.which("py-spy")
    beside = [Path(sys.executable).parent, Path.home() / ".local/bin"]
    for way in (f"/proc/{process.pid}/exe", process.title):
        if way.startswith("/"):
            try:
                beside += [Path(way).readlink().parent] if way.startswith("/proc") else [Path(way).parent]
            except OSError:
                continue
    for folder in () if found else beside:
        path = folder / "py-spy"
        if path.is_file() and os.access(path, os.X_OK) and _is_ours(path) and _is_ours(folder):
            return str(path)
    return found


def _is_ours(path: Path) -> bool:
    state = path.stat()
    return state.st_uid in (0, os.geteuid()) and not state.st_mode & 0o002


def dump(process: HostProcess) -> str:
    """Return the stacks of a Python process as py-spy prints them; raises Unseen."""
    if not process.python:
        raise Unseen("no-python")
    program = py_spy(process)
    if program is None:
        raise Unseen("no-py-spy")
    for _ in range(TRIES):
        try:
            told = subprocess.run(
                [program, "dump", "--nonblocking", "--pid", str(process.pid)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=DUMP,
                check=False,
                env={**os.environ, "NO_COLOR": "1"},
            )
        except subprocess.TimeoutExpired:
            raise Unseen("late", seconds=f"{DUMP:.0f}") from None
        except OSError as error:
            raise Unseen("no-start", error=error.strerror) from None
        if told.returncode == 0 and told.stdout:
            return told.stdout.decode("utf-8", "replace")[:_MOST]
    lines = told.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
    said = next((line for line in lines if "ermission" in line), lines[-1])
    if "ermission" not in said:
        raise Unseen("failed", error=said)
    scope = _text(Path("/proc/sys/kernel/yama/ptrace_scope"))
    if os.geteuid() != 0 and scope not in ("", "0"):
        raise Unseen("ptrace-scope", value=scope)
    raise Unseen(_denial())


def _denial() -> str:
    return "no-capability" if os.geteuid() == 0 else "ptrace"


def check_files(process: HostProcess) -> None:
    """Raise Unseen if the open files of a process may not be seen."""
    try:
        Path(f"/proc/{process.pid}/exe").readlink()  # asks for the same permission
    except PermissionError:
        raise Unseen(_denial()) from None
    except OSError:
        return


def state(process: HostProcess) -> dict[str, Any] | None:
    """Return what the kernel says of a process: its state, where it sleeps, the processor time it took; None when it is gone."""
    folder = Path(f"/proc/{process.pid}")
    fields = _text(folder / "stat").rpartition(")")[2].split()
    if len(fields) < 20 or int(fields[19]) != process.started or fields[0] in "ZX":
        return None
    threads = [_text(entry / "stat").rpartition(")")[2].split()[:1] for entry in _entries(folder / "task")]
    letters = [part[0] for part in threads if part]
    told: dict[str, Any] = {
        "state": fields[0],
        "cpu_seconds": round((int(fields[11]) + int(fields[12])) / TICKS, 2),
        "gpu": _has_gpu(folder),
        "threads": {letter: letters.count(letter) for letter in sorted(set(letters))},
    }
    # 0 and "running" are no places; the stack and the system call are shown to root, or who may use ptrace.
    for name, most in (("wchan", 100), ("syscall", 200), ("stack", 4000)):
        found = _text(folder / name)[:most]
        if found not in ("", "0"):
            told[name] = found
    return told


def _has_gpu(folder: Path) -> bool | None:
    """Tell whether a process has a GPU open (NVIDIA, AMD, Ascend); None where its open files cannot be seen."""
    found = False
    try:
        for entry in (folder / "fd").iterdir():
            found = found or _GPU.match(_link(entry)) is not None
    except OSError:
        return None
    return found


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(1 << 16).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(folder.iterdir())
    except OSError:
        return


def send_signal(process: HostProcess, name: str) -> None:
    """Send a signal to a process that handles it; raises Unseen for one that does not: it would be killed."""
    number = signal.Signals[f"SIG{name}"]
    status = _text(Path(f"/proc/{process.pid}/status"))
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    if not int(caught, 16) >> (number - 1) & 1:
        raise Unseen("no-handler", signal=number.name)
    try:
        os.kill(process.pid, number)
    except OSError as error:
        raise Unseen("no-start", error=error.strerror) from None
