"""Probe of the kernel log since boot: faults of GPUs (Xid, SXid) and processes killed for memory, where readable."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget, uptime

#: Seconds for journalctl, faults that are kept, bytes of a file's end that are read, records of the kernel's buffer.
_JOURNAL_TIMEOUT, _KEPT, _TAIL, _RECORDS = 6.0, 64, 4 << 20, 200_000
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{1,4}),? ?(.*)")
_SXID = re.compile(r"SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{1,6}),? ?(.*)")
_KILLED = re.compile(r"Killed process \d+ \(([^)]*)\)")
_FILES = ("var/log/kern.log", "var/log/messages", "var/log/syslog")

#: Seconds since the epoch, if known, and the message.
Line = tuple[float | None, str]


def probe_kernel(where: ProbeTarget) -> ProbeResult:
    """Return the faults with their times, and which source told them."""
    seen = ProbeResult({"source": None, "xids": [], "switch_errors": [], "killed": []})
    for source, lines in _sources(where):
        if lines is not None:
            seen.facts["source"] = source
            _read(lines, seen.facts)
            return seen
    seen.miss("kernel-log", "denied", path=where.root / "dev/kmsg")
    return seen


def _read(lines: Iterable[Line], facts: dict[str, Any]) -> None:
    for when, line in lines:
        for name, pattern in (("xids", _XID), ("switch_errors", _SXID)):
            if found := pattern.search(line):
                facts[name].append(
                    {"address": found[1].lower(), "code": int(found[2]), "time": when, "text": found[3][:200]}
                )
        if found := _KILLED.search(line):
            facts["killed"].append({"process": found[1][:40], "time": when})
    for name in ("xids", "switch_errors", "killed"):
        del facts[name][:-_KEPT]


def _sources(where: ProbeTarget) -> Iterator[tuple[str, list[Line] | None]]:
    """Yield the places where the kernel's messages may be found, with None for those that cannot be read."""
    yield "/dev/kmsg", _buffer(where)
    if where.root == Path("/"):
        yield "journalctl -k", _journal()
    for name in _FILES:
        yield f"/{name}", _tail(where.root / name)


def _buffer(where: ProbeTarget) -> list[Line] | None:
    """Return the records of the kernel's buffer (Linux, Documentation/ABI/testing/dev-kmsg)."""
    running = uptime(where.root)
    boot = None if running is None else time.time() - running
    try:
        buffer = os.open(where.root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    found: list[Line] = []
    try:
        for _ in range(_RECORDS):
            try:
                record = os.read(buffer, 8192)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten while we read: the next is there
                    continue
                return None
            if not record:
                break
            found += _records(record, boot)
    finally:
        os.close(buffer)
    return found


def _records(data: bytes, boot: float | None) -> Iterator[Line]:
    for line in data.decode("utf-8", "replace").splitlines():
        head, semicolon, message = line.partition(";")
        microseconds = head.split(",")[2:3]
        if semicolon and microseconds and microseconds[0].isdigit():
            yield (None if boot is None else boot + int(microseconds[0]) * 1e-6), message


def _journal() -> list[Line] | None:
    """Return the journal's kernel messages of this boot, None where there is none for this user."""
    if shutil.which("journalctl") is None:
        return None
    try:
        told = subprocess.run(
            ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-unix", "-n", "100000"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_JOURNAL_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = told.stdout.decode("utf-8", "replace").splitlines()
    if told.returncode != 0 or not lines:
        return None
    found: list[Line] = []
    for line in lines:
        when, _, message = line.partition(" ")
        found.append((float(when) if when.replace(".", "", 1).isdigit() else None, message))
    return found


def _tail(path: Path) -> list[Line] | None:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            return [(None, line) for line in file.read(_TAIL).decode("utf-8", "replace").splitlines()]
    except OSError:
        return None
