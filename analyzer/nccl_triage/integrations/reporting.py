"""What happens in a rank that fails: its traceback is saved, and one rank of the host has the logs diagnosed.

All of this runs in a thread that the rank waits for, for a bounded time: a file system or a lock that hangs must not
keep a dead job alive. The diagnosis is made by a child process (``child.py``), so that neither its memory nor a crash is
the job's.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nccl_triage import messages

#: Seconds after the deadline in which a killed child is waited for and files are written.
GRACE = 5.0
#: Bytes of a traceback, and of a summary, at most.
_TRACEBACK, _SUMMARY = 1 << 20, 4096
#: Files of one name that are tried.
_NUMBERS = 999
#: Seconds between two looks for a report that another rank makes.
_LOOK = 0.2
#: Endings of a log in one file, which the job may not have begun.
_LOGS = (".log", ".txt", ".out", ".err")
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


@dataclass(frozen=True, slots=True)
class ReportPlace:
    """Where the logs lie, since when the run lasts (seconds of the epoch), and further logs to be read."""

    logs: str
    since: float
    further: tuple[str, ...] = ()
    #: Whether the tracebacks are those of this host.
    local: bool = True

    @property
    def folder(self) -> Path:
        """The folder that is written to."""
        path = Path(self.logs)
        is_file = not path.is_dir() if path.exists() else path.suffix in _LOGS
        return path.parent if is_file else path

    @property
    def stem(self) -> str:
        """The beginning of the names of our files."""
        return f"nccl-triage-{host()}"


def host() -> str:
    """Return the name of this host as it may stand in a file name."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", os.uname().nodename)[:64].strip(".-") or "host"


def rank() -> int | None:
    """Return the global rank of this process as its launcher or torch says, None for a process without one."""
    found = next((value for name in _RANK if (value := os.environ.get(name, "")).isdigit()), None)
    if found is not None:
        return int(found)
    torch = sys.modules.get("torch.distributed")  # not imported for this
    if torch is not None:
        with contextlib.suppress(Exception):
            if torch.is_available() and torch.is_initialized():
                return int(torch.get_rank())
    return None


def started() -> float | None:
    """Return when this process began, in seconds of the epoch; None where /proc does not tell (proc(5))."""
    with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
        ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return time.time() - since_boot
    return None


def start(place: ReportPlace, errors: Mapping[int | None, BaseException], redact: bool, deadline: float) -> Reporting:
    """Begin to save the tracebacks of ranks, and have the logs diagnosed if no other rank of the host does."""
    return Reporting(place, errors, redact, deadline)


class Reporting:
    """A report in the making."""

    def __init__(
        self, place: ReportPlace, errors: Mapping[int | None, BaseException], redact: bool, deadline: float
    ) -> None:
        self._place = place
        self._errors = errors
        self._redact = redact
        self._deadline = time.monotonic() + deadline
        self._child: subprocess.Popen[bytes] | None = None
        self._summary = ""
        self._thread = threading.Thread(target=self._work, name="nccl-triage", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end, no longer than until the deadline, and print the summary; raises nothing."""
        try:
            self._thread.join(self._left + GRACE)
            _print(self._summary)
        except BaseException:
            # The user has no patience.
            return
        finally:
            self.stop()

    def _work(self) -> None:
        try:
            self._run()
        except OSError as error:
            self.tell("no diagnosis is written: {why}", why=error.strerror or error)
        except BaseException:
            return

    def stop(self) -> None:
        """End the child, if it runs, with all that it has started."""
        child = self._child
        if child is not None and child.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)

    def _run(self) -> None:
        _flush()
        folder = self._place.folder
        folder.mkdir(parents=True, exist_ok=True)
        saved = [_save(self._place, rank, error) for rank, error in self._errors.items()]
        first = next(iter(self._errors))
        claim = _claim(self._place, self._sentence(first))
        if claim.mine:
            self._diagnose(claim.path, claim.line, saved)
        else:
            self._wait_for(claim.path)

    def _sentence(self, rank: int | None) -> str:
        now = datetime.datetime.now().astimezone().isoformat()
        template = "a process failed at {time}" if rank is None else "rank {rank} failed at {time}"
        return messages.fill(template, {"rank": rank, "time": now}, messages.locale_language())

    def _diagnose(self, path: Path, line: str, saved: Sequence[Path]) -> None:
        order = {
            "logs": self._place.logs,
            "further": [*self._place.further, *map(str, saved)],
            "since": self._place.since,
            "text": str(path),
            "page": str(path.with_suffix(".html")),
            "line": line,
            "redact": self._redact,
            # Longer than we wait, for the case that we are killed meanwhile.
            "deadline": round(self._left + GRACE),
        }
        from nccl_triage.hosts import safe_path

        try:
            child = self._child = subprocess.Popen(
                safe_path.command("nccl_triage.integrations.child", json.dumps(order)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=safe_path.environment(os.environ),
                start_new_session=True,
            )
            summary = child.communicate(timeout=self._left)[0]
        except subprocess.TimeoutExpired:
            self.stop()
            child.wait(GRACE)
            cause = "the time limit has passed"
            self._give_up(path, line, cause)
        except (OSError, ValueError) as error:
            self._give_up(path, line, "{reason}", reason=getattr(error, "strerror", None) or error)
        else:
            if not summary:
                cause = "the analysis ended with code {code}"
                self._give_up(path, line, cause, code=child.returncode)
            self._summary = self._summary or summary[:_SUMMARY].decode("utf-8", "replace")

    def _give_up(self, path: Path, line: str, cause: str, **values: object) -> None:
        lang = messages.locale_language()
        self.tell("no diagnosis: {why}", why=messages.fill(cause, values, lang))
        with contextlib.suppress(OSError):
            path.write_text(f"{line}\n{self._summary}", encoding="utf-8")

    def _wait_for(self, path: Path) -> None:
        """Stay until the report of another rank is written: the launcher stops that rank when this one exits."""
        while self._left > 0 and not _finished(path):
            time.sleep(_LOOK)

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def tell(self, template: str, **values: object) -> None:
        """Set the summary to a sentence in the user's language."""
        self._summary = f"nccl-triage: {messages.fill(template, values, messages.locale_language())}\n"


def _print(text: str) -> None:
    with contextlib.suppress(Exception):
        sys.stderr.write("".join(char for char in text if char.isprintable() or char == "\n"))
        sys.stderr.flush()


def _flush() -> None:
    """Flush what this process has printed and logged."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = [handler for logger in loggers for handler in getattr(logger, "handlers", ())]
    for target in (*handlers, sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            target.flush()


def _save(place: ReportPlace, rank: int | None, error: BaseException) -> Path:
    """Write a traceback, as Python prints it, into a file of the rank: what is printed may not be in the logs yet."""
    known = getattr(error, "_traceback_str", None)  # how Ray Train carries the one of a worker
    lines = [known] if isinstance(known, str) else traceback.format_exception(type(error), error, error.__traceback__)
    data = ("".join(lines).rstrip("\n") + "\n").encode("utf-8", "backslashreplace")
    if len(data) > _TRACEBACK:
        data = data[: _TRACEBACK // 2] + b"\n...\n" + data[-_TRACEBACK // 2 :]
    stem = place.stem if place.local else "nccl-triage"
    name = stem if rank is None else f"{stem}-rank{rank}"
    for path in _numbered(place.folder, name, ".log"):
        try:
            _create(path, data)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(17, os.strerror(17))


def _numbered(folder: Path, name: str, end: str) -> Iterator[Path]:
    for number in range(1, _NUMBERS + 1):
        yield folder / (f"{name}-{number}{end}" if number > 1 else f"{name}{end}")


def _create(path: Path, data: bytes) -> None:
    """Write a new file; nothing is left of one that has no room. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


@dataclass(frozen=True, slots=True)
class _Claim:
    """The text file of a report, its first line, and whether it is this rank that writes it."""

    path: Path
    line: str
    mine: bool


def _claim(place: ReportPlace, sentence: str) -> _Claim:
    """Take the next name of a report, unless a rank of this host has taken one since this run began.

    The times are of one clock: the name holds the host.
    """
    line = f"nccl-triage: {sentence}"
    for path in _numbered(place.folder, place.stem, ".txt"):
        if path.with_suffix(".html").exists() and not path.exists():
            continue
        try:
            _create(path, f"{line}\n".encode())
        except FileExistsError:
            taken = _taken(path)
            if taken is None or taken >= place.since:
                return _Claim(path, line, mine=False)
            continue
        return _Claim(path, line, mine=True)
    raise FileExistsError(17, os.strerror(17))


def _taken(path: Path) -> float | None:
    """Return when a name was taken; None if that is just being done, 0 for a file of somebody else."""
    with path.open("rb") as stream:
        first = stream.readline(1000).decode("utf-8", "replace")
    if not first:
        return None
    try:
        return datetime.datetime.fromisoformat(first.split()[-1]).timestamp()
    except (ValueError, IndexError):
        return 0.0


def _finished(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4096).count(b"\n") != 1
