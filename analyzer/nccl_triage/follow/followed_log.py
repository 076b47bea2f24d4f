"""A followed log: the live scan of its content, what has happened to its file, and its name after a move."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from nccl_triage.ingest import walk
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.sources import Source, display_name
from nccl_triage.ingest.tail import Change, FileTail, PipeTail
from nccl_triage.observations.event import Event
from nccl_triage.observations.mapping import renamed
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.scan.preview import Note
from nccl_triage.scan.scanner import Scanner


class LiveScan:
    """The scan of a growing stream (``ingest.tail``); in the end it has found what one scan of the whole finds."""

    def __init__(self, scanner: Scanner, stream: BinaryIO, info: SourceInfo, note: Note) -> None:
        self.info = info
        self.ended = False
        self._reader = LineReader(stream, info)
        self._blocks = self._reader.raw_blocks()
        self._scan = scanner.begin(self._reader, info)
        self._ahead = self._scan.run.start_preview(note)
        self._result: Observations | None = None

    @property
    def open(self) -> bool:
        """Whether a block is open, such as a traceback whose last line may not have been written yet."""
        return self._ahead.open

    def advance(self, most: int) -> bool:
        """Scan at most ``most`` blocks; return whether there is more."""
        for _ in range(most):
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
                return False
            if not block.data:
                self._scan.catch_up()
                self._ahead.active = True
                self._scan.run.preview_waiting()
                self._ahead.glance(self._reader.held())
                return False
            self._scan.take(block)
        self._ahead.active = False  # scanning ahead of a backlog would only slow us down
        return True

    def so_far(self) -> Observations:
        """Return the observations so far, which share state with this scan and are valid until the next ``advance``."""
        if self._result is not None:
            return self._result
        found = Observations()
        found.add_source(self.info)
        for part in self._scan.run.so_far():
            found.absorb(part)
        return found

    def finish(self) -> Observations:
        """Scan the rest of a source that no longer grows, and return the observations."""
        if self._result is None:
            for block in self._blocks:
                if block.data:
                    self._scan.take(block)
            self._result = self._scan.finish()
        return self._result


#: Receives an event and its log.
Heard = Callable[["FollowedLog", Event], None]
#: Blocks that are read of one log before the next one.
BLOCKS = 16


class FollowedLog:
    """A file that is followed until it ends, also after a move; or a pipe."""

    def __init__(self, source: Source, tail: FileTail | PipeTail, scanner: Scanner, heard: Heard, part: int) -> None:
        self.origin = source
        self.tail = tail
        #: How many files had this name before.
        self.part = part
        #: Whether there is more to read at once.
        self.behind = True
        #: Whether its lines are read as they are written, and no longer the backlog of the start.
        self.live = False
        self.name = source.path
        self.moved = False
        self.result: Observations | None = None
        #: When it last grew, and since when it has been missing from its place.
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
        """Whether a block is open that may continue."""
        return self.result is None and self._scan.open

    @property
    def came(self) -> float:
        """When the lines read now were written, as far as known."""
        now = time.time()
        return now if self.live or self.file is None else min(now, self.file.written)

    def look(self) -> Change:
        """Tell whether there is something to read, or what has happened to the file."""
        return "grown" if self.behind or self.file is None else self.file.look()

    def advance(self) -> int:
        """Read what was added, up to ``BLOCKS`` blocks; return the number of bytes."""
        before = self.read
        self.behind = self._scan.advance(BLOCKS)
        if self._scan.ended:
            self.finish()
        return self.read - before

    def caught_up(self) -> bool:
        """Return true once, when the backlog of the start has been read."""
        first = not self.live and not self.behind
        self.live = self.live or first
        return first

    def trace(self) -> bool:
        """Take over the current name of the file; return whether it still exists."""
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
        """Finish, and keep the observations under a name that says until when the file existed."""
        if self.file is not None:
            self.file.give_up()
        self._call(f"{self.origin.path} (part {self.part}, until {time.strftime('%H:%M:%S')})")
        self.finish()

    def _call(self, name: str) -> None:
        if self.result is not None:
            self.result = renamed(self.result, self.name, name)
        self.name, self.moved = name, True

    def stop(self) -> None:
        """Read no further than to the current end."""
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
        """Return the observations so far, under the current name of the log."""
        if self.result is not None:
            return self.result
        found = self._scan.so_far()
        return renamed(found, self.origin.path, self.name) if self.moved else found

    def source(self) -> Source | None:
        """Return the source to read excerpts from, None where the log cannot be read again."""
        if self.file is None or self.file.lost:
            return None
        return Source(self.name, self.origin.info.unread(), file=self.file.path, size=self.read)


class FollowedArchive:
    """A log that is read as a whole: a compressed one, torchelastic's error.json."""

    def __init__(self, source: Source) -> None:
        self.origin = source
        self.result: Observations | None = None
        self._seen: tuple[int, int, int] | None = None
        self._read: tuple[int, int, int] | None = None

    def due(self, end: bool = False) -> bool:
        """Tell whether to read it (again): it has stopped changing, or following ends."""
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
    """Tell whether an argument may match other files later."""
    path = Path(argument)
    return path.is_dir() or walk.has_magic(argument) or not path.exists()


def open_tail(source: Source) -> FileTail | PipeTail | None:
    """Return the tail of a source, None for one that is read as a whole; raises OSError."""
    file = source.file or Path()
    if source.size is None:
        return PipeTail.named(file)
    return None if source.only_whole() else FileTail(file)


def same_writer(one: SourceInfo, other: SourceInfo) -> bool:
    """Tell whether two names of a source identify the same writer."""

    def told(info: SourceInfo) -> tuple[object, ...]:
        return (info.rank, info.local_rank, info.host, info.pid, info.attempt, info.stream, info.layout)

    return told(one) == told(other)
