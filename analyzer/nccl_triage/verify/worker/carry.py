"""Logs of ranks on a host that shares no folder with the driver: files without a name, whose end travels to it.

There is nothing to remove, however the agent ends, SIGKILL included.
"""

from __future__ import annotations

import os
import tempfile

#: Bytes of a rank's log that are carried to the driver: its end.
LOG = 256 << 10


def unnamed() -> int:
    """Return the descriptor of a new file that lies in no folder; raises OSError when there is no room for one."""
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def end_of(log: int) -> str:
    """Return the end of a log, from the start of a line, and give the file up."""
    size = os.fstat(log).st_size
    text = os.pread(log, LOG, max(0, size - LOG)).decode(errors="replace")
    os.close(log)
    return text.partition("\n")[2] or text if size > LOG else text
