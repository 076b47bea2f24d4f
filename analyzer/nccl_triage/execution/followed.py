"""One log that is followed: what is read of it, what has become of it, and what to call it when it has moved."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from nccl_triage.ingest import walk
from nccl_triage.ingest.sources import Source, display_name
from nccl_triage.ingest.tail import Change, FileTail, PipeTail
from nccl_triage.observations.event import Event
from nccl_triage.observations.mapping import renamed
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.scan.live import LiveScan
from nccl_triage.scan.scanner import Scanner

#: Is told an event and the log that it stands in.
Heard = Callable[["Log", Event], None]
#: Blocks that are read of one log before the next one has its turn.
BLOCKS = 16


class Log:
    """A file from where it was found until it ends, whatever its name becomes; or a pipe."""

    def __init__(self, source: Source, tail: FileTail | PipeTail, scanner: Scanner, heard: Heard, part: int) -> None:
        self.origin = source
        self.tail = tail
        #: How many files bore this name before.
        self.part = part
        #: Whether there is more to read at once.
        self.behind = True
        #: Whether its lines come as they are written; before, they lay there already.
        self.live = False
        self.name = source.path
        self.moved = False
        self.result: Observations | None = None
        #: When it was seen to grow last, and since when it is not where it was.
        self.grown = 0.0
        self.gone: float | None = None
        self._scan = LiveScan(scanner, cast(BinaryIO, tail), source.info.unread(), lambda event: heard(self, event))

    @property
    def file(self) -> FileTail | None:
        """The file, None for a pipe."""
        return self.tail if isinstance(self.tail, FileTail) else None

    @property
    def read(self) -> int:
        """Bytes read so far."""
        return self._scan.info.bytes

    @property
    def open(self) -> bool:
        """Whether a block is open that may go on."""
        return self.result is None and self._scan.open

    @property
    def came(self) -> float:
        """When what is read now was written, as far as we can tell."""
        now = time.time()
        return now if self.live or self.file is None else min(now, self.file.written)

    def look(self) -> Change:
        """Tell whether there is something to read, or what has become of the file."""
        return "grown" if self.behind or self.file is None else self.file.look()

    def advance(self) -> int:
        """Read what there is, within bounds; return the bytes that came."""
        before = self.read
        self.behind = self._scan.advance(BLOCKS)
        if self._scan.ended:
            self.finish()
        return self.read - before

    def caught_up(self) -> bool:
        """Tell, once, that what lay there at the beginning has been read."""
        first = not self.live and not self.behind
        self.live = self.live or first
        return first

    def trace(self) -> bool:
        """Take the name that the file has now; return whether it is still there under any."""
        path = self.file.moved() if self.file is not None and not self.file.lost else None
        if self.file is None or path is None:
            return False
        folder = (self.origin.file or path).parent
        if path.parent == Path(os.path.realpath(folder)):
            path = folder / path.name  # as the user calls it
        if path != self.file.path:
            self.file.go_to(path)
            self._call(display_name(path))
        return True

    def leave(self) -> None:
        """End, and keep what was read under a name that says that it is no longer there."""
        if self.file is not None:
            self.file.give_up()
        self._call(f"{self.origin.path} (part {self.part}, until {time.strftime('%H:%M:%S')})")
        self.finish()

    def _call(self, name: str) -> None:
        if self.result is not None:
            self.result = renamed(self.result, self.name, name)
        self.name, self.moved = name, True

    def stop(self) -> None:
        """Read no further than to the end that the log has now."""
        self.tail.stop()

    def finish(self) -> None:
        """Read the rest and close the file."""
        if self.result is None:
            self.tail.ended = True
            found = self._scan.finish()
            self.result = renamed(found, self.origin.path, self.name) if self.moved else found
            if not self.tail.closed:
                self.tail.close()

    def observations(self) -> Observations:
        """Return what was seen so far, under the name that the log has now."""
        if self.result is not None:
            return self.result
        found = self._scan.so_far()
        return renamed(found, self.origin.path, self.name) if self.moved else found

    def source(self) -> Source | None:
        """Return what to read excerpts from, None where the log cannot be read again."""
        if self.file is None or self.file.lost:
            return None
        return Source(self.name, self.origin.info.unread(), file=self.file.path, size=self.read)


class Archive:
    """A log that is read as a whole: a compressed one, torchelastic's error.json."""

    def __init__(self, source: Source) -> None:
        self.origin = source
        self.result: Observations | None = None
        self._seen: tuple[int, int, int] | None = None
        self._read: tuple[int, int, int] | None = None

    def due(self, end: bool = False) -> bool:
        """Tell whether it is to be read (again): it stands still, or nothing more will be waited for."""
        try:
            state = (self.origin.file or Path()).stat()
        except OSError:
            return False
        now = (state.st_ino, state.st_size, state.st_mtime_ns)
        still = now == self._seen or time.time() - state.st_mtime > 2
        self._seen = now
        return now != self._read and (still or end)

    def scan(self, scanner: Scanner) -> None:
        """Read it."""
        from nccl_triage.execution.reading import scan_source

        self._read = self._seen
        self.result = scan_source(replace(self.origin, info=self.origin.info.unread()), scanner)


def may_grow(argument: str) -> bool:
    """Tell whether an argument may name other files later."""
    path = Path(argument)
    return path.is_dir() or walk.has_magic(argument) or not path.exists()


def open_tail(source: Source) -> FileTail | PipeTail | None:
    """Return what reads a source on, None for one that is read as a whole; raises OSError."""
    file = source.file or Path()
    if source.size is None:
        return PipeTail.named(file)
    return None if source.only_whole() else FileTail(file)


def same_writer(one: SourceInfo, other: SourceInfo) -> bool:
    """Tell whether a source's name still says the same of who wrote it."""

    def told(info: SourceInfo) -> tuple[object, ...]:
        return (info.rank, info.local_rank, info.host, info.pid, info.attempt, info.stream, info.layout)

    return told(one) == told(other)
