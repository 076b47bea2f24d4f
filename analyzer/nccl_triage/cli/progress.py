"""Progress on stderr: only on terminals, only after a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType

#: Seconds of silence before the first line.
DELAY = 1.0


class Progress:
    """Say how many bytes are read; remove the line at the end."""

    def __init__(self, quiet: bool) -> None:
        self._show = not quiet and sys.stderr.isatty()
        self._started = time.monotonic()
        self._shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def bytes(self, done: int) -> None:
        """Report the bytes read so far."""
        elapsed = time.monotonic() - self._started
        if self._show and elapsed > DELAY:
            sys.stderr.write(f"\r\x1b[Kread {done / 1e6:.0f} MB in {elapsed:.0f} s")
            sys.stderr.flush()
            self._shown = True
