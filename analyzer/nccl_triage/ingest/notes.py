"""What to tell about inputs that were left out."""

from __future__ import annotations

from os import fsencode
from pathlib import Path

#: Notes of one kind that name their file; the rest is counted.
_EXAMPLES = 8


def display_name(path: Path | str) -> str:
    """Return a path as printable text: names can hold any byte, and end up in terminals and reports."""
    text = fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class Notes:
    """What was left out and why; of many of one kind some are named and the rest counted."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._unread: list[str] = []
        self._skipped: dict[str, list[str]] = {}

    def say(self, text: str) -> None:
        """Note a sentence, once."""
        if text not in self._texts:
            self._texts.append(text)

    def unread(self, path: Path | str, why: str) -> None:
        """Note that something named or found cannot be read."""
        self._unread.append(f"cannot read {display_name(path)}: {why}")

    def skipped(self, path: Path, why: str) -> None:
        """Note that a file was left out on purpose."""
        self._skipped.setdefault(why, []).append(display_name(path))

    def texts(self) -> list[str]:
        """Return the notes, problems first."""
        found = [*self._texts, *self._unread[:_EXAMPLES]]
        if len(self._unread) > _EXAMPLES:
            found.append(f"{len(self._unread) - _EXAMPLES} more could not be read")
        for why, paths in self._skipped.items():
            names = ", ".join(paths[:_EXAMPLES]) + (", ..." if len(paths) > _EXAMPLES else "")
            found.append(f"skipped {len(paths)} {'file' if len(paths) == 1 else 'files'} ({why}): {names}")
        return found
