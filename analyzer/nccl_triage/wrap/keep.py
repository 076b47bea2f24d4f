"""Keeps the output of a command in bounded space: the log that is diagnosed when the command fails.

Nothing that goes wrong here may harm the command: a disk that is full is said once, and from then on the end of
the output is kept in memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

#: Bytes of a segment of a temporary log. Its first segment and its last ones are kept.
SEGMENT = 64 << 20
#: Last segments kept besides the first: a day of a chatty job, not all of the disk below /tmp.
LAST_SEGMENTS = 4
#: Bytes of the end of the output that are kept in memory once the disk is full.
TAIL = 8 << 20
#: Bytes of an unfinished line that wait for their end, so that lines of two streams do not mix in the log.
_LINE = 1 << 16


class LogFile:
    """The whole output in the file that the user named. Raises OSError when it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Private, whatever the umask says: the command's own words may hold secrets, and nothing is masked here.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        """Append, or raise OSError."""
        write_all(self._file, data)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def discard(self) -> None:
        """Leave the file: it was asked for."""


class TemporaryLog:
    """Beginning and end of the output in a folder of its own, at most ``1 + LAST_SEGMENTS`` segments.

    After ``close`` everything lies in ``path``, with a line where something was left out.
    """

    def __init__(self, segment: int = SEGMENT) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="nccl-triage-run-"))
        self.path = self._folder / "output.log"
        self._segment = segment
        self._current = LogFile(self.path)
        self._used = 0
        self._later: list[Path] = []
        self._number = 0
        self._left_out = 0

    def write(self, data: bytes) -> None:
        """Append, or raise OSError."""
        if self._used >= self._segment:
            self._next()
        self._current.write(data)
        self._used += len(data)

    def _next(self) -> None:
        self._number += 1
        path = self._folder / f"later-{self._number}"
        following = LogFile(path)
        self._current.close()
        self._current, self._used = following, 0
        self._later.append(path)
        if len(self._later) > LAST_SEGMENTS:
            oldest = self._later.pop(0)
            self._left_out += oldest.stat().st_size
            oldest.unlink()

    def close(self) -> None:
        """Join the segments; raises OSError when there is no room for that."""
        self._current.close()
        if not self._later:
            return
        with self.path.open("ab") as whole:
            if self._left_out:
                whole.write(b"\n[nccl-triage run left out %d bytes here]\n" % self._left_out)
            while self._later:
                with self._later[0].open("rb") as part:
                    shutil.copyfileobj(part, whole, 1 << 20)
                self._later.pop(0).unlink()

    def discard(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder, ignore_errors=True)


class Keeper:
    """Takes the output of several streams, from several threads, line by line."""

    def __init__(self, log: LogFile | TemporaryLog | None, failed: Callable[[OSError], None]) -> None:
        """Write to ``log`` and tell ``failed`` once when that is not possible any more; without a log use memory."""
        self._log = log
        self._failed = failed
        self._lock = threading.Lock()
        self._unfinished: dict[int, bytes] = {}
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._broken = log is None
        self.empty = True

    @property
    def path(self) -> Path | None:
        """The file that holds the output, or its beginning when the disk became full."""
        return self._log.path if self._log is not None else None

    @property
    def temporary(self) -> bool:
        """Whether nobody asked for the file."""
        return isinstance(self._log, TemporaryLog)

    @property
    def tail(self) -> bytes:
        """The end of the output, where the log could not take it."""
        return b"".join(self._tail)

    def write(self, stream: int, data: bytes) -> None:
        """Keep some bytes of a stream."""
        with self._lock:
            self.empty = False
            data = self._unfinished.get(stream, b"") + data
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            if not end and len(data) > _LINE:
                end = len(data)
            self._unfinished[stream] = data[end:]
            if end:
                self._put(data[:end])

    def _put(self, data: bytes) -> None:
        if not self._broken and self._log is not None:
            try:
                self._log.write(data)
                return
            except OSError as error:
                self._broken = True
                self._failed(error)
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= TAIL:
            self._tail_size -= len(self._tail.popleft())

    def close(self, last_line: str = "") -> None:
        """Write unfinished lines and a final line of ours; nothing is kept afterwards."""
        with self._lock:
            for data in self._unfinished.values():
                if data:
                    self._put(data if not last_line else data + b"\n")
            self._unfinished.clear()
            if last_line:
                self._put(last_line.encode("utf-8", "replace") + b"\n")
            if self._log is None:
                return
            try:
                self._log.close()
            except OSError as error:
                if not self._broken:
                    self._failed(error)

    def discard(self) -> None:
        """Remove a temporary log."""
        if self._log is not None:
            self._log.discard()


def write_all(target: int, data: bytes) -> None:
    """Write every byte to a descriptor, waiting where it is full; raises OSError."""
    import select

    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:  # somebody else made the shared descriptor non-blocking
            select.select([], [target], [])
