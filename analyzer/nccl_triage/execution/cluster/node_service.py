"""The work on a node: find logs, scan them, merge findings, and read excerpts.

Calls come from several threads: progress is queried while a scan may hang in the file system.
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
from nccl_triage.execution.cluster import codec
from nccl_triage.execution.reading import scan_source
from nccl_triage.ingest import context_lines
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.ingest.sources import Source, find_sources
from nccl_triage.observations.store import Observations
from nccl_triage.scan.scanner import Scanner
from nccl_triage.stopping import ReadingStop


class _Halt(ReadingStop):
    """Ends the reading at the next read; another thread asks for it and cannot interrupt a blocking call."""

    def _news(self) -> None:
        pass


@dataclass(slots=True)
class Listing:
    """The logs of a node. Equal ``machine`` means the same file system, equal ``likeness`` the same files."""

    sources: list[Source]
    notes: list[str]
    machine: str
    likeness: str


class NodeService:
    """The state of one worker: findings that the driver has not taken yet."""

    def __init__(self, rules: bytes) -> None:
        gc_tuning.collect_rarely()
        self._rules = codec.unpack_rules(rules)
        self._scanner: Scanner | None = None
        self._found = Observations()
        self._done: list[str] = []
        self._lock = threading.Lock()
        self._stop = _Halt()
        self._read = self._steps = 0

    def find(self, arguments: Sequence[str], since: float | None, links: bool = False) -> Listing:
        """Return the logs on this node that the arguments name; the notes say what cannot be read."""
        try:
            names = LayoutReader(self._rules.layouts)
            sources, notes = find_sources(arguments, None, since, links=links, names=names)
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
        """End the scan because of this signal; what was read so far is kept."""
        self._stop.ask(number)

    def progress(self) -> tuple[int, int]:
        """Return the bytes read so far, and a counter that grows with any progress."""
        return self._read, self._steps + self._read

    def take(self) -> tuple[list[str], bytes]:
        """Hand over the sources that are done and their findings."""
        with self._lock:
            found, self._found = self._found, Observations()
            done, self._done = self._done, []
        return done, codec.pack(found)

    def merge(self, *parts: bytes) -> tuple[list[str], bytes]:
        """Merge the findings of several workers; the result has the form of ``take``."""
        total = Observations()
        for part in parts:
            total.absorb(codec.unpack(part))
            self._steps += 1
        return [], codec.pack(total)

    def windows(self, wanted: Sequence[tuple[Source, Sequence[int]]]) -> list[dict[str, Any]]:
        """Return the excerpts around lines of sources."""
        return [found for source, lines in wanted for found in context_lines.read(source, lines)]

    def _count(self, size: int) -> None:
        self._read += size


def _machine() -> str:
    """Return an identifier that is equal for processes with the same mounts: the boot id and the mount namespace."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/mnt')}"  # noqa: PTH115 - no path
    except OSError:
        return os.uname().nodename


def _likeness(sources: Sequence[Source]) -> str:
    """Return a digest of the files' names, inodes, sizes and times: equal on machines that share storage."""
    digest = hashlib.sha256()
    for source in sources:
        try:
            state = (source.file or Path()).stat()
        except OSError:
            continue
        digest.update(f"{source.path}\0{state.st_ino} {state.st_size} {state.st_mtime_ns}\n".encode(errors="replace"))
    return digest.hexdigest() if sources else ""
