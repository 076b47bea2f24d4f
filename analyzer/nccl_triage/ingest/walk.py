"""Find files: what a folder or a pattern holds, each once, in an order that does not depend on the disk."""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from os import stat_result
from pathlib import Path

from nccl_triage.lazy_regex import lazily

#: Folders of code and packages, never of logs; ``runtime_resources`` is Ray's copy of the user's environment.
SKIPPED_FOLDERS = frozenset({
    ".git", ".hg", ".svn", ".bzr", "CVS", "__pycache__", "node_modules", "site-packages", "runtime_resources",
})  # fmt: skip

#: File systems of the kernel: their files have no end, or block, and no job writes its logs there.
KERNEL_FOLDERS = ("/proc", "/sys")
OF_THE_KERNEL = "kernel files, not logs"
LEADS_OUT = "links that lead out of the folder; --follow-links reads them"
#: Files and folders that one walk looks at, at most.
MAX_ENTRIES = 200_000

Complain = Callable[[Path, str], None]
_DIGITS = lazily(r"(\d+)")


def natural_key(text: str) -> tuple[tuple[int, str | int], ...]:
    """Return a sort key that puts ``rank2`` before ``rank10``."""
    parts = _DIGITS.split(text)
    # The end sorts before any continuation, and tells "1" from "01".
    return (*((index % 2, int(p) if index % 2 else p) for index, p in enumerate(parts)), (-1, text))


def _path_key(path: Path) -> tuple[tuple[tuple[int, str | int], ...], ...]:
    return tuple(natural_key(part) for part in path.parts)


def has_magic(text: str) -> bool:
    """Tell whether an argument is a pattern that the shell has left to us."""
    return glob.has_magic(text)


def reason(error: OSError) -> str:
    """Return the words of an operating system error, without number and path."""
    return error.strerror or str(error)


@cache
def _kernel_devices() -> frozenset[int]:
    found = set()
    for name in KERNEL_FOLDERS:
        with suppress(OSError):
            found.add(Path(name).stat().st_dev)
    # A machine without these file systems shows the folders of its disk there.
    return frozenset(found - {Path("/").stat().st_dev})


def is_kernels(state: stat_result) -> bool:
    """Tell whether a file or folder is a view into the kernel, such as ``/proc/kmsg``."""
    return state.st_dev in _kernel_devices()


class _Walk:
    """The folders that one walk has entered: links lead to some of them again, or round in circles."""

    def __init__(self, root: Path, complain: Complain, aside: Complain, links: bool) -> None:
        self._complain = complain
        self._aside = aside
        #: Where links may lead, None for anywhere.
        self._within = None if links else os.path.realpath(root)
        self._seen = 0
        self._visited: set[tuple[int, int]] = set()
        # From the root to where the walk is. No recursion: a tree may be deeper than Python's stack.
        self._above: list[tuple[int, int]] = []
        self._open: list[Iterator[tuple[Path, bool]]] = []

    def enter(self, folder: Path) -> None:
        try:
            state = folder.stat()
            if is_kernels(state):
                self._aside(folder, OF_THE_KERNEL)
                return
            with os.scandir(folder) as entries:
                names = [(folder / entry.name, entry.is_symlink()) for entry in entries]
            names.sort(key=lambda pair: natural_key(pair[0].name))
        except OSError as error:
            self._complain(folder, reason(error))
            return
        key = (state.st_dev, state.st_ino)
        if key not in self._visited:
            self._visited.add(key)
            self._above.append(key)
            self._open.append(iter(names))
        elif key in self._above:
            self._complain(folder, "a link back to a folder above it, not followed")

    def __iter__(self) -> Iterator[tuple[Path, stat_result]]:
        while self._open:
            path, is_link = next(self._open[-1], (None, False))
            if path is None:
                self._open.pop()
                self._above.pop()
                continue
            self._seen += 1
            if self._seen > MAX_ENTRIES:
                self._complain(path.parent, f"more than {MAX_ENTRIES} files and folders; the rest was not read")
                return
            # Before anything is asked of what the link leads to: that alone may take long.
            if is_link and self._leads_out(path):
                self._aside(path, LEADS_OUT)
                continue
            try:
                state = path.stat()
            except OSError as error:
                self._complain(path, reason(error))
                continue
            if not stat.S_ISDIR(state.st_mode):
                yield path, state
            elif path.name not in SKIPPED_FOLDERS:
                yield path, state
                self.enter(path)

    def _leads_out(self, path: Path) -> bool:
        """Tell whether a link leads to what does not lie below the folder that was named."""
        if self._within is None:
            return False
        target = os.path.realpath(path)
        return target != self._within and not target.startswith(self._within.rstrip("/") + "/")


def tree(
    root: Path, complain: Complain, aside: Complain | None = None, *, links: bool = False
) -> Iterator[tuple[Path, stat_result]]:
    """Yield everything below a folder with its state, each folder once; links are followed within it.

    What cannot be read or leads back to a folder above is told to ``complain(path, why)``, what is left out on purpose to
    ``aside(path, why)``. With ``links`` they are followed wherever they lead.
    """
    walk = _Walk(root, complain, aside or complain, links)
    walk.enter(root)
    yield from walk


def _accepts(pattern: str, name: str) -> bool:
    """Match one component as a shell does: a leading dot must be asked for."""
    return fnmatch.fnmatchcase(name, pattern) and (not name.startswith(".") or pattern.startswith("."))


def _matches(parts: tuple[str, ...], pattern: list[str]) -> bool:
    """Match path components with a pattern in which ``**`` stands for any number of them."""

    def closure(states: set[int]) -> set[int]:
        # "**" may stand for nothing.
        reached = set(states)
        for at in states:
            while at < len(pattern) and pattern[at] == "**":
                at += 1
                reached.add(at)
        return reached

    states = closure({0})
    for part in parts:
        following: set[int] = set()
        for at in states - {len(pattern)}:
            if pattern[at] == "**":
                if not part.startswith("."):
                    following.add(at)
            elif _accepts(pattern[at], part):
                following.add(at + 1)
        states = closure(following)
    return len(pattern) in states


def expand(pattern: str, complain: Complain, aside: Complain | None = None, *, links: bool = False) -> list[Path]:
    """Return the paths that match a pattern, sorted; ``**`` crosses folders.

    With ``**`` folders are left out when files match: what they hold matches too.
    """
    parts = Path(pattern).parts
    if "**" not in parts:
        return sorted(map(Path, glob.glob(pattern)), key=_path_key)  # noqa: PTH207 - takes absolute patterns
    # Not the recursion of glob: it follows links in circles.
    fixed = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    root, wanted = Path(*parts[:fixed]), list(parts[fixed:])
    files: list[Path] = []
    folders: list[Path] = []
    for path, state in tree(root, complain, aside, links=links):
        if _matches(path.relative_to(root).parts, wanted):
            (folders if stat.S_ISDIR(state.st_mode) else files).append(path)
    return sorted(files or folders, key=_path_key)
