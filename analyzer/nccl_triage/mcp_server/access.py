"""Which paths a model may name: files and folders within the folders that the person allowed, wherever links lead."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from nccl_triage.errors import UsageError

#: Paths of one call, and characters of a path, at most.
MOST_PATHS, LONGEST = 64, 4096


class CallRefusedError(Exception):
    """A call that is not carried out; the text tells the model why, and what may be done."""


class AllowedFolders:
    """The folders that the person allowed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Raises UsageError for what is no folder."""
        for folder in folders:
            if not folder.is_dir():
                raise UsageError("--allow {path}: there is no such folder", path=folder)
        self.folders = tuple(Path(os.path.realpath(folder)) for folder in folders)

    def resolved(self, paths: Sequence[str]) -> list[str]:
        """Return absolute paths without links; raises CallRefusedError for one that may not or cannot be read."""
        if not 0 < len(paths) <= MOST_PATHS:
            raise CallRefusedError(f"give 1 to {MOST_PATHS} paths; a folder counts as one")
        return [self.path(path) for path in paths]

    def path(self, given: str) -> str:
        """Return one path, see ``resolved``. A relative path is looked for in the allowed folders, in their order."""
        if not given or len(given) > LONGEST or "\0" in given:
            raise CallRefusedError("a path has 1 to 4096 characters")
        candidates = [os.path.realpath(folder / given) for folder in self.folders]  # an absolute path stays what it is
        inside = [path for path in candidates if self._within(path)]
        if not inside:
            raise CallRefusedError(
                "this path is outside the folders that the person allowed; only the person can allow more, with "
                "nccl-triage mcp --allow FOLDER"
            )
        found = next((path for path in inside if os.path.lexists(path)), None)
        if found is None:
            raise CallRefusedError("there is no such file or folder within the allowed folders")
        mode = Path(found).stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise CallRefusedError("this is neither a file nor a folder: a pipe or a device is not read")
        return found

    def _within(self, path: str) -> bool:
        return any(Path(path).is_relative_to(folder) for folder in self.folders)
