"""What is done on a node: find logs, scan them, put findings together, read lines again.

Calls come from several threads: a scan may hang in the file system while it is asked how far it is.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nccl_triage import gc_tuning
from nccl_triage.errors import InputError
from nccl_triage.execution.cluster import parcel
from nccl_triage.execution.reading import scan_source
from nccl_triage.ingest import context_lines
from nccl_triage.ingest.sources import Source, find_sources
from nccl_triage.observations.store import Observations
from nccl_triage.scan.scanner import Scanner
from nccl_triage.stopping import ReadingStop


class _Halt(ReadingStop):
    """Ends reading at the next read: another thread asks for it, which cannot give up a call that waits."""

    def _news(self) -> None:
        pass


@dataclass(slots=True)
class Listing:
    """The logs that a node has. Equal ``machine``: the same file system; equal ``likeness``: the same files."""

    sources: list[Source]
    notes: list[str]
    machine: str
    likeness: str


class Desk:
    """The state of one worker: what it has scanned and nobody has taken yet."""

    def __init__(self, rules: bytes) -> None:
        gc_tuning.collect_rarely()
        self._rules = parcel.unpack_rules(rules)
        self._scanner: Scanner | None = None
        self._found = Observations()
        self._done: list[str] = []
        self._lock = threading.Lock()
        self._stop = _Halt()
        self._read = self._steps = 0

    def find(self, arguments: Sequence[str], since: float | None, links: bool = False) -> Listing:
        """Return the logs that the arguments name here; what cannot be read is in the notes."""
        try:
            sources, notes = find_sources(arguments, None, since, links=links)
        except InputError as error:
            sources, notes = [], [error.cause or error.message]
        return Listing(sources, notes, _machine(), _likeness(sources))

    def scan(self, sources: Sequence[Source]) -> tuple[list[int], int]:
        """Scan sources; returns the numbers of those that do not exist here, and the bytes read so far."""
        if self._scanner is None:
            self._scanner = Scanner(self._rules)
        missing = []
        for number, source in enumerate(sources):
            if source.file is not None and not source.file.exists():
                missing.append(number)
                continue
            found = scan_source(source, self._scanner, self._count, self._stop)
            with self._lock:
                self._found.absorb(found)
                self._done.append(source.path)
                self._steps += 1
        return missing, self._read

    def halt(self, number: int) -> None:
        """End the scan, because of a signal of this number: what was read until now is what was found."""
        self._stop.ask(number)

    def progress(self) -> tuple[int, int]:
        """Return the bytes read so far, and a number that changes whenever anything gets done."""
        return self._read, self._steps + self._read

    def take(self) -> tuple[list[str], bytes]:
        """Return the sources that are done and what was found in them, and forget it."""
        with self._lock:
            found, self._found = self._found, Observations()
            done, self._done = self._done, []
        return done, parcel.pack(found)

    def merge(self, *parts: bytes) -> tuple[list[str], bytes]:
        """Return what several workers found as one, in the form of ``take``."""
        total = Observations()
        for part in parts:
            total.absorb(parcel.unpack(part))
            self._steps += 1
        return [], parcel.pack(total)

    def windows(self, wanted: Sequence[tuple[Source, Sequence[int]]]) -> list[dict[str, Any]]:
        """Return the excerpts around lines of sources."""
        return [found for source, lines in wanted for found in context_lines.read(source, lines)]

    def _count(self, size: int) -> None:
        self._read += size


def _machine() -> str:
    """Return what processes that see the same files have in common: the boot of a kernel and the table of mounts."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/mnt')}"  # noqa: PTH115 - no path
    except OSError:
        return os.uname().nodename


def _likeness(sources: Sequence[Source]) -> str:
    """Return a digest of the names, numbers, sizes and times of files: equal on machines that share a storage."""
    digest = hashlib.sha256()
    for source in sources:
        try:
            state = (source.file or Path()).stat()
        except OSError:
            continue
        digest.update(f"{source.path}\0{state.st_ino} {state.st_size} {state.st_mtime_ns}\n".encode(errors="replace"))
    return digest.hexdigest() if sources else ""
