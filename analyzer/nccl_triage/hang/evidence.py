"""What a host can show of a hanging job besides stacks: RAS, flight recorder, GPUs, kernel log, connections, logs.

Nothing here stops, signals or slows a process of the job. Facts: NCCL ``src/ras`` (``NCCL_RAS_ADDR``, localhost:28028), PyTorch
``ProcessGroupNCCL.hpp`` (``DumpPipe``: the watchdog of each rank reads ``PREFIX RANK .pipe`` without blocking and dumps after
any byte), ``FlightRecorder`` (where dumps are written), proc(5) (``fd``, ``fdinfo``, ``net/tcp``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nccl_triage.hang.processes import TICKS, HostProcess, JobRank, ancestors
from nccl_triage.hang.stacks import Unseen, check_files
from nccl_triage.hosts.probes import ras

#: Bytes of a log, of all logs of a host, of a flight recorder dump, and of the output of a program, at most.
LOG, LOGS, RECORD, OUTPUT = 4 << 20, 32 << 20, 64 << 20, 8 << 20
#: Seconds for nvidia-smi (drivers without persistence mode take long), dmesg, and a dump to appear.
SMI, DMESG, DUMPED = 30.0, 5.0, 8.0
_RAS = "localhost:28028"
#: Variables with the prefix of the pipe and of the dump, the newer name first.
_PIPES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
_DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def ask_ras(ranks: Sequence[JobRank]) -> str:
    """Return the report of NCCL's RAS; raises Unseen where no process of the job answers on its port."""
    asked = {one.process.variables.get("NCCL_RAS_ADDR", _RAS) for one in ranks}
    report = "".join(ras.ask(address) for address in sorted(asked))
    if not report:
        raise Unseen("no-ras", address=", ".join(sorted(asked)))
    return report


def recorded(one: JobRank) -> bytes:
    """Return the flight recorder dump of a rank, a new one if its pipe can be written to; raises Unseen."""
    given, root = one.process.variables, f"/proc/{one.process.pid}/root"
    if one.rank is None:
        raise Unseen("no-rank")
    owner = _owner(one.process)
    dumps = [Path(f"{root}{prefix}{one.rank}") for prefix in _dump_prefixes(given)]
    before = {path: _changed(path, owner) for path in dumps}
    pipe = next((f"{root}{given[name]}{one.rank}.pipe" for name in _PIPES if given.get(name, "").startswith("/")), None)
    asked = pipe is not None and _write(pipe, owner)
    deadline = time.monotonic() + DUMPED
    # A file that is written again is empty at first.
    while (
        asked and time.monotonic() < deadline and all(_changed(path, owner) in (None, before[path]) for path in dumps)
    ):
        time.sleep(0.1)
    for path in dumps:
        # One that was there before counts if this process wrote it: a timeout has passed already.
        if (_changed(path, owner) or 0.0) >= _began(one.process):
            return _whole(path, RECORD)
    if asked:
        raise Unseen("no-dump", seconds=f"{DUMPED:.0f}")
    raise Unseen("no-pipe" if pipe is None else "dead-pipe", path=pipe)


def _dump_prefixes(given: Mapping[str, str]) -> list[str]:
    told = [given[name] for name in _DUMPS if given.get(name, "").startswith("/")]
    cache = given.get("XDG_CACHE_HOME") or f"{given.get('HOME', '')}/.cache"
    usual = [f"{cache}/torch/comm_lib_trace_rank_", f"{given.get('HOME', '')}/.cache/torch/nccl_trace_rank_"]
    return told or [*usual, "/tmp/nccl_trace_rank_"]


def _owner(process: HostProcess) -> int | None:
    """Return the user of a process. What another user put at the path of a dump or a pipe, perhaps a link, is not touched."""
    try:
        return Path(f"/proc/{process.pid}").stat().st_uid
    except OSError:
        return None


def _write(pipe: str, owner: int | None) -> bool:
    """Ask for a dump; False where nobody reads the pipe. It is opened without waiting, and is never created."""
    try:
        state = Path(pipe).lstat()
        if not stat.S_ISFIFO(state.st_mode) or state.st_uid != owner:
            return False
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # ENXIO: no reader
        return False
    with contextlib.suppress(OSError), os.fdopen(descriptor, "wb", buffering=0) as file:
        file.write(b"1")
        return True
    return False


def _changed(path: Path, owner: int | None) -> float | None:
    """Return when a file of this user was written last; None for one that is not there or is empty."""
    try:
        state = path.lstat()
    except OSError:
        return None
    return state.st_mtime if stat.S_ISREG(state.st_mode) and state.st_size and state.st_uid == owner else None


def _booted() -> float:
    """Return when this host began, in seconds of the epoch."""
    return time.time() - float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])


def _began(process: HostProcess) -> float:
    """Return when a process began, in seconds of the epoch."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return _booted() + process.started / TICKS
    return float("inf")


def _whole(path: Path, most: int) -> bytes:
    """Return a regular file that is no longer being written to; raises Unseen for one that is too large or unreadable."""
    size = -1
    for _ in range(20):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise Unseen("unreadable", path=path, error=error.strerror) from None
        with os.fdopen(descriptor, "rb") as file:
            now = os.fstat(descriptor).st_size
            if now > most:
                raise Unseen("too-large", path=path, size=now)
            if now == size:
                return file.read(most)
        size = now
        time.sleep(0.1)
    raise Unseen("unreadable", path=path, error="it is still being written to")


def printed(program: str, *words: str, seconds: float) -> str:
    """Return what a program prints; raises Unseen where there is none, or it fails or takes too long."""
    path = shutil.which(program) or shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin")
    if path is None:
        raise Unseen("no-program", program=program)
    try:
        told = subprocess.run(
            [path, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unseen("late", seconds=f"{seconds:.0f}") from None
    except OSError as error:
        raise Unseen("no-start", error=error.strerror) from None
    if told.returncode != 0 or not told.stdout.strip():
        lines = (told.stderr or told.stdout).decode("utf-8", "replace").strip().splitlines() or ["no output"]
        raise Unseen("failed", error=lines[-1])
    return told.stdout[-OUTPUT:].decode("utf-8", "replace")


def gpus() -> str:
    """Return what nvidia-smi says of the GPUs; raises Unseen."""
    return printed("nvidia-smi", "-q", seconds=SMI)


#: Seconds before the start of the job from which on lines of the kernel count, and how it stamps them.
_BEFORE = 60.0
_STAMP = re.compile(r"\[ *(\d+\.\d+)\] ")
#: What the kernel says of a process that crashed. PyTorch gives its threads and workers names of their own.
_CRASH = re.compile(r"(?:traps: )?(?!pt_)[^\s\[\]]{1,64}\[\d+\]:? (?:segfault at|general protection|trap )")


def kernel_log(ranks: Sequence[JobRank]) -> str:
    """Return what the kernel has said since the job began, with the time of day; raises Unseen.

    Where every rank that was started here is still there, a process that crashed was none of them; nor was one before.
    """
    all_there = _all_there(ranks)
    began = min((one.process.started for one in ranks), default=0) / TICKS
    booted = _booted()
    lines = []
    for line in printed("dmesg", seconds=DMESG).splitlines():
        stamp = _STAMP.match(line)
        if stamp is None:
            continue
        is_crash = _CRASH.match(line, stamp.end()) is not None
        if not (is_crash and all_there) and float(stamp[1]) >= began - (0.0 if is_crash else _BEFORE):
            lines.append(f"[{time.ctime(booted + float(stamp[1]))}] {line[stamp.end() :]}")
    return "\n".join(lines) + "\n" if lines else ""


def _all_there(ranks: Sequence[JobRank]) -> bool:
    """Tell whether the launcher has started as many ranks on this host as there are."""
    started = {len(one.beside) or one.here for one in ranks}
    return started == {len(ranks)}


_STATES = {
    "01": "ESTAB", "02": "SYN-SENT", "03": "SYN-RECV", "04": "FIN-WAIT-1", "05": "FIN-WAIT-2", "06": "TIME-WAIT",
    "07": "CLOSE", "08": "CLOSE-WAIT", "09": "LAST-ACK", "0A": "LISTEN", "0B": "CLOSING",
}  # fmt: skip
#: Connections of a rank that are listed.
_CONNECTIONS = 1000
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def connections(ranks: Iterable[JobRank]) -> str:
    """Return the TCP connections of the ranks: state, bytes that wait, retransmissions, both ends."""
    lines = []
    for one in ranks:
        check_files(one.process)
        inodes = {found[1] for target in _targets(one.process).values() if (found := _SOCKET.match(target))}
        who = f"rank {one.rank}" if one.rank is not None else "rank ?"
        for line in [*_connections(one.process.pid, inodes)][:_CONNECTIONS]:
            lines.append(f"{who} pid {one.process.pid} {line}")
    if not lines:
        raise Unseen("no-connections")
    return "\n".join(lines) + "\n"


def _connections(pid: int, inodes: set[str]) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        for row in rows:
            part = row.split()
            if len(part) > 9 and part[9] in inodes:
                waiting, queued = (int(number, 16) for number in part[4].split(":"))
                state = _STATES.get(part[3], part[3])
                ends = f"{_address(part[1])} -> {_address(part[2])}"
                yield f"{state} send-q {waiting} recv-q {queued} retransmits {int(part[6], 16)} {ends}"


def _address(text: str) -> str:
    """Return an address of /proc/net/tcp, whose words are in the order of this processor."""
    address, _, port = text.partition(":")
    data = bytes.fromhex(address)
    words = [data[at : at + 4] for at in range(0, len(data), 4)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    shown = socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, b"".join(words))
    return f"{shown.removeprefix('::ffff:')}:{int(port, 16)}"


def _targets(process: HostProcess) -> dict[int, str]:
    """Return the open files of a process by descriptor."""
    found = {}
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(OSError, ValueError):
                found[int(entry.name)] = str(entry.readlink())
    return found


#: Endings of files that are written to and are logs; standard output and error need none.
_LOG = re.compile(r"\.(?:log|out|err|stdout|stderr)(?:\.\d+)?$", re.I)
_PIPE = re.compile(r"pipe:\[\d+\]")


class OpenLog(NamedTuple):
    """A log that processes of the job have open: its last lines, and how many bytes were added since its size was noted."""

    name: str
    data: bytes
    grown: int


def log_sizes(ranks: Sequence[JobRank], processes: Mapping[int, HostProcess]) -> dict[tuple[int, int], int]:
    """Return the sizes of the logs, by device and inode."""
    return {(state.st_dev, state.st_ino): state.st_size for _, state, _ in _regular_logs(ranks, processes)}


def logs(
    ranks: Sequence[JobRank], processes: Mapping[int, HostProcess], sizes: Mapping[tuple[int, int], int]
) -> Iterator[OpenLog]:
    """Yield the log files that the ranks and their launchers have open for writing, each once; ``sizes`` are earlier ones.

    A rank that writes to a pipe is followed to the processes at its other end, such as ``tee``.
    """
    names: dict[str, int] = {}
    left = LOGS
    for link, state, path in _regular_logs(ranks, processes):
        try:
            handle = os.open(link, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            continue
        with os.fdopen(handle, "rb"):
            size = os.fstat(handle).st_size
            data = _tail(handle, size, min(LOG, left))
        if b"\0" in data[:4096] or not data:
            continue
        left -= len(data)
        grown = max(0, size - sizes.get((state.st_dev, state.st_ino), size))
        name = "/".join(part for part in path.removesuffix(" (deleted)").split("/")[-3:] if part not in ("", "..", "."))
        names[name] = names.get(name, 0) + 1
        yield OpenLog(name if names[name] == 1 else f"{names[name]}/{name}", data, min(grown, len(data)))


def _regular_logs(
    ranks: Sequence[JobRank], processes: Mapping[int, HostProcess]
) -> Iterator[tuple[str, os.stat_result, str]]:
    """Yield the way to each log, its state and its path; a pipe or a terminal is not even opened."""
    seen: set[tuple[int, int]] = set()
    for process, descriptor, path in _open_logs(ranks, processes):
        link = f"/proc/{process.pid}/fd/{descriptor}"
        try:
            state = Path(link).stat()
        except OSError:
            continue
        if stat.S_ISREG(state.st_mode) and state.st_size and (state.st_dev, state.st_ino) not in seen:
            seen.add((state.st_dev, state.st_ino))
            yield link, state, path


def _open_logs(
    ranks: Sequence[JobRank], processes: Mapping[int, HostProcess]
) -> Iterator[tuple[HostProcess, int, str]]:
    """Yield process, descriptor and path of what may be a log, those of ranks first."""
    pipes = set()
    own = {one.process.pid: one.process for one in ranks}
    # What is above this process, too, is no launcher of the job: a shell, a terminal, a session.
    me = processes.get(os.getpid())
    shared = {each.pid for each in ancestors(processes, me)} if me is not None else set()
    above = {each.pid: each for one in ranks for each in ancestors(processes, one.process) if each.pid not in shared}
    for process in (*own.values(), *above.values()):
        targets = _targets(process)
        for descriptor, path in sorted(targets.items()):
            standard = descriptor in (1, 2)
            if standard and _PIPE.match(path):
                pipes.add(path)
                continue
            # A launcher writes logs of its ranks; a shell or a terminal above it has other ones.
            likely = standard or (process.python and _LOG.search(path) is not None)
            if likely and path.startswith("/") and _is_written(process.pid, descriptor):
                yield process, descriptor, path
    for process in processes.values() if pipes else ():
        if process.pid in own or process.pid in above:
            continue
        targets = _targets(process)
        if not any(path in pipes and not _is_written(process.pid, number) for number, path in targets.items()):
            continue  # it does not read what a rank writes
        for descriptor, path in sorted(targets.items()):
            if path.startswith("/") and not path.startswith("/dev/") and _is_written(process.pid, descriptor):
                yield process, descriptor, path


def _is_written(pid: int, descriptor: int) -> bool:
    with contextlib.suppress(OSError, ValueError, IndexError):
        told = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(encoding="ascii")
        flags = next(line.split()[1] for line in told.splitlines() if line.startswith("flags:"))
        return bool(int(flags, 8) & (os.O_WRONLY | os.O_RDWR))
    return False


def _tail(descriptor: int, size: int, most: int) -> bytes:
    """Return the last whole lines of a file."""
    if most <= 0:
        return b""
    data = os.pread(descriptor, min(size, most), max(0, size - most))
    return data if size <= most else data.partition(b"\n")[2]
