"""``--open``: the report in the user's browser, or a sentence that says why not."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def temporary_report() -> Path:
    """Return the place of a report that nobody named: in a folder that only the user can read.

    The report stays, since a browser reads it after us; without one the folder is removed at the end.
    """
    folder = Path(tempfile.mkdtemp(prefix="nccl-triage-"))
    atexit.register(_remove, folder)
    return folder / "report.html"


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def open_page(path: Path, wish: Any) -> None:
    """Open a page; ``wish.tell`` says a sentence where there is no display. Nothing here raises.

    Python's own ``webbrowser`` chooses the browser ($BROWSER, xdg-open and others) in a process that has none of our
    streams: what a browser prints is no result, and a pipe behind us must not wait until it is closed.
    """
    if not path.is_file():
        return
    has_display = sys.platform == "darwin" or any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")))
    if not has_display:
        wish.tell("there is no display here; open {path} in a browser", path=path.absolute())
        return
    try:
        subprocess.Popen(
            [sys.executable, "-I", "-m", "webbrowser", path.absolute().as_uri()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        wish.tell(
            "no browser can be started ({reason}); open {path} in one",
            reason=error.strerror or error,
            path=path.absolute(),
        )
