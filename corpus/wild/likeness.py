"""Whether two logs are the same one, although names, numbers and paths were changed in one of them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

#: Share of the different lines of both that two copies of a log have in common, and of the shorter one for a cut copy.
SAME, WITHIN, SAME_OF_BOTH = 0.55, 0.9, 0.4
#: The same share of two logs of one program in the same set-up.
SISTERS = 0.3
#: Fewer different lines show nothing; of longer lines only the beginning is compared.
FEWEST, LONGEST = 5, 120
_NUMBER = re.compile(rb"[0-9a-fA-F]{6,}|\d+")
_PATH = re.compile(rb"/\S+")

#: The different lines of a log, without their numbers and paths.
Shape = frozenset[int]


def shape_of(contents: Iterable[bytes]) -> Shape:
    """Return the shape of a log from the contents of its files."""
    return frozenset(
        zlib.crc32(folded[:LONGEST])
        for data in contents
        for line in data.splitlines()
        if len(folded := _PATH.sub(b"/P", _NUMBER.sub(b"#", line)).strip()) > 12
    )


class Likeness(NamedTuple):
    """How much of the different lines of two logs both have: of those of both, and of those of the shorter one."""

    of_both: float
    of_shorter: float

    @property
    def is_same(self) -> bool:
        """Whether they are one log."""
        return self.of_both >= SAME or (self.of_shorter >= WITHIN and self.of_both >= SAME_OF_BOTH)

    @property
    def is_sister(self) -> bool:
        """Whether they are logs of one program in the same set-up."""
        return self.of_both >= SISTERS


def likeness(one: Shape, other: Shape) -> Likeness:
    """Return how alike two shapes are; short ones are like none."""
    if min(len(one), len(other)) < FEWEST:
        return Likeness(0.0, 0.0)
    shared = len(one & other)
    return Likeness(shared / len(one | other), shared / min(len(one), len(other)))


def shapes_below(folder: Path) -> Iterator[tuple[str, Shape]]:
    """Yield name and shape of each log in a folder of logs: its files, and its folders as one log each."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        yield path.name, shape_of(one.read_bytes() for one in files)
