"""The files that a rank leaves: its output, and the log of its NCCL.

Where the driver sees the run's folder they lie there; elsewhere they lie in no folder, and what matters of them is carried.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

#: Bytes of a file that are carried: its end; of NCCL's log its beginning, too, which names networks and links.
LOG = 256 << 10


def unnamed_file() -> int:
    """Return the descriptor of a new file that lies in no folder; raises OSError when there is no room for one."""
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@dataclass
class RankFiles:
    """Descriptors of a rank's files, and the name by which its NCCL opens its own (None: it writes none)."""

    output: int
    nccl: int | None = None
    nccl_name: str | None = None
    carried: bool = False

    @property
    def inherited(self) -> tuple[int, ...]:
        """The descriptors that the rank needs beside its output."""
        return () if self.nccl is None else (self.nccl,)

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self.output, *self.inherited):
            os.close(descriptor)

    def contents(self) -> dict[str, str]:
        """Return what is carried, by the names of the answer, and close the files."""
        if not self.carried:
            return {}
        found = {"log": _end(self.output)}
        if self.nccl is not None:
            found["nccl_log"] = _beginning(self.nccl) + _end(self.nccl)
        self.close()
        return found


def opened(folder: Path, rank: int, *, carried: bool, nccl: bool) -> RankFiles:
    """Open a rank's files; raises OSError when there is no room for them."""
    if carried:
        files = RankFiles(unnamed_file(), carried=True)
        if nccl:
            files.nccl = unnamed_file()
            files.nccl_name = f"/proc/self/fd/{files.nccl}"
        return files
    folder.mkdir(parents=True, exist_ok=True)
    # Private: a rank's own output may hold secrets of its environment.
    files = RankFiles(_private(folder / f"rank-{rank}.log"))
    if nccl:
        path = folder / f"rank-{rank}.nccl.log"
        os.close(_private(path))
        files.nccl_name = str(path)
    return files


def _private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)


def _beginning(log: int) -> str:
    """Return the first lines of a log that is longer than its end."""
    if os.fstat(log).st_size <= LOG:
        return ""
    return os.pread(log, LOG, 0).decode(errors="replace").rpartition("\n")[0] + "\n"


def _end(log: int) -> str:
    """Return the end of a log, from the start of a line."""
    size = os.fstat(log).st_size
    text = os.pread(log, LOG, max(0, size - LOG)).decode(errors="replace")
    return text.partition("\n")[2] or text if size > LOG else text
