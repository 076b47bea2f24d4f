"""Find files: what a folder or a pattern holds, each once, in an order that does not depend on the disk."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Iterator

#: Folders that hold code or packages, never logs. ``runtime_resources`` is Ray's copy of the user's
#: environment.
SKIPPED_FOLDERS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".bzr",
        "CVS",
        "__pycache__",
        "node_modules",
        "site-packages",
        "runtime_resources",
    }
)

Complain = Callable[[str, str], None]
_DIGITS = re.compile(r"(\d+)")


def natural_key(text: str) -> tuple[tuple[int, str | int], ...]:
    """Return a sort key that puts ``rank2`` before ``rank10``."""
    parts = _DIGITS.split(text)
    # Equal numbers of different width ("1", "01") are told apart by the whole text at the end.
    return (*((index % 2, int(p) if index % 2 else p) for index, p in enumerate(parts)), (2, text))


def has_magic(text: str) -> bool:
    """Tell whether an argument is a pattern that the shell has left to us."""
    return glob.has_magic(text)


def reason(error: OSError) -> str:
    """Return the words of an operating system error, without number and path."""
    return error.strerror or str(error)


def tree(root: str, complain: Complain) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below a folder with its state, links followed, each folder once.

    What cannot be read or leads back to a folder above is told to ``complain(path, why)``.
    """
    visited: dict[tuple[int, int], str] = {}
    above: list[tuple[int, int]] = []
    stack: list[Iterator[str]] = []

    def enter(folder: str) -> None:
        try:
            state = os.stat(folder)
            names = sorted(os.listdir(folder), key=natural_key)
        except OSError as error:
            complain(folder, reason(error))
            return
        key = (state.st_dev, state.st_ino)
        if key in visited:
            if key in above:
                complain(folder, f"a link back to {visited[key]} (loop), not followed")
            return
        visited[key] = folder
        above.append(key)
        stack.append(os.path.join(folder, name) for name in names)

    enter(root)
    while stack:
        path = next(stack[-1], None)
        if path is None:
            stack.pop()
            above.pop()
            continue
        try:
            state = os.stat(path)
        except OSError as error:
            complain(path, reason(error))
            continue
        if not stat.S_ISDIR(state.st_mode):
            yield path, state
        elif os.path.basename(path) not in SKIPPED_FOLDERS:
            yield path, state
            enter(path)


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """Match path components with a pattern in which ``**`` stands for any number of them."""
    reached = {0}
    for part in [*parts, None]:
        # "**" may stand for nothing.
        for at in sorted(reached):
            while at < len(pattern) and pattern[at] == "**":
                at += 1
                reached.add(at)
        if part is None:
            break
        following: set[int] = set()
        for at in reached:
            if at == len(pattern):
                continue
            if pattern[at] == "**":
                if not part.startswith("."):
                    following.add(at)
            elif fnmatch.fnmatchcase(part, pattern[at]) and (part[0] != "." or pattern[at][0] == "."):
                following.add(at + 1)
        reached = following
    return len(pattern) in reached


def expand(pattern: str, complain: Complain) -> list[str]:
    """Return the paths that match a pattern, sorted; ``**`` crosses folders.

    With ``**`` folders are left out when files match: what they hold matches too.
    """
    parts = pattern.split("/")
    if "**" not in parts:
        return sorted(glob.glob(pattern), key=natural_key)
    # Not glob's own recursion: it follows links in circles.
    fixed = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    root = "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")
    wanted = [part for part in parts[fixed:] if part]
    files: list[str] = []
    folders: list[str] = []
    for path, state in tree(root, complain):
        relative = os.path.relpath(path, root)
        if _matches(relative.split(os.sep), wanted):
            shown = relative if fixed == 0 else path
            (folders if stat.S_ISDIR(state.st_mode) else files).append(shown)
    return sorted(files or folders, key=natural_key)
