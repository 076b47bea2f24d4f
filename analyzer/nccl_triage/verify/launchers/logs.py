"""Where the driver keeps the ranks' logs, also of ranks on hosts that share no folder with it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Logs:
    """The folders of the runs that one link has started."""

    def __init__(self) -> None:
        self._folders: dict[str, Path] = {}

    def note(self, command: Mapping[str, Any]) -> None:
        """Keep where a run's logs shall lie, if the command starts one."""
        if command.get("do") == "run":
            self._folders[command["run"]] = Path(command["folder"])

    def unpack(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer; a log that came with it is written to where it would lie if the rank had run here."""
        text = answer.pop("log", None)
        folder = self._folders.get(str(answer.get("run")))
        if isinstance(text, str) and folder is not None:
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                path = folder / f"rank-{int(answer['rank'])}.log"
                folder.mkdir(parents=True, exist_ok=True)
                path.touch(mode=0o600)
                path.write_text(text, encoding="utf-8", errors="replace")
        return answer
