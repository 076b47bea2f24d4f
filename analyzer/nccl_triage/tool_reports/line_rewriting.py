"""Rewrite reports of tools line by line: each stays one line, so that line numbers stay true, and names its subject."""

from __future__ import annotations

from collections.abc import Callable

from nccl_triage.lazy_regex import lazily

#: Reports of one host are some hundred KiB; something larger is a log that holds one, and is read as it is.
MAX_SIZE = 16 << 20
#: Longer lines belong to no report; nesting deeper than this to none either.
MAX_LINE, MAX_DEPTH = 1000, 12
_PLAIN = lazily(r"[^a-z0-9]+")


def key(name: str) -> str:
    """Return a label as one word: ``DRAM Uncorrectable`` is written ``dram_uncorrectable`` in XML."""
    return _PLAIN.sub("_", name.lower()).strip("_")


def rewrite(data: bytes, change: Callable[[str], str | None]) -> bytes:
    """Return the lines, those for which ``change`` returns a text replaced by it."""
    found: list[bytes] = []
    for raw in data.split(b"\n"):
        told = None
        if raw.strip() and len(raw) <= MAX_LINE:
            told = change(raw.decode("utf-8", "replace").rstrip("\r"))
        found.append(raw if told is None else told.encode("utf-8", "replace"))
    return b"\n".join(found)


class Sections:
    """The headings above a line, told from its indentation."""

    def __init__(self) -> None:
        self._above: list[tuple[int, str]] = []

    def clear(self) -> None:
        """Forget all headings."""
        self._above.clear()

    def at(self, indent: int) -> str:
        """Return the headings above a line with this indentation, each with a slash behind it."""
        while self._above and self._above[-1][0] >= indent:
            self._above.pop()
        return "".join(f"{name}/" for _, name in self._above)

    def open(self, indent: int, name: str) -> None:
        """Note a heading."""
        self.at(indent)
        if len(self._above) < MAX_DEPTH:
            self._above.append((indent, name))
