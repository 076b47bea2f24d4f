"""A log that was copied from a pane of a terminal, with the borders and what its neighbours showed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

BORDER = "\u2502"
#: Lines of which a border must stand in nearly all, at the same column: tables and boxes in a log are shorter than it.
_FEWEST, _SHARE = 5, 0.9


def fullest(data: bytes) -> bytes:
    """Return the lines of the pane that shows most; all of them where there are no borders."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    wanted = _SHARE * sum(1 for line in lines if line.strip())
    columns = Counter(at for line in lines for at, letter in enumerate(line) if letter == BORDER)
    borders = sorted(at for at, count in columns.items() if count >= wanted)
    if len(lines) < _FEWEST or not borders:
        return data
    framed = [line[borders[0] : borders[0] + 1] == BORDER for line in lines]
    panes = [
        [line[left + 1 : right].rstrip() if inside else line for line, inside in zip(lines, framed, strict=True)]
        for left, right in pairwise((-1, *borders, max(map(len, lines))))
    ]
    shown = max(panes, key=lambda pane: sum(len(line.strip()) for line in pane))
    return "\n".join(shown).encode("utf-8", "surrogateescape")
