"""Find known names in a text: whole words, the longest first, whatever their case, in time that grows with the text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from nccl_triage.lazy_regex import lazily

_RUN = lazily(r"[A-Za-z0-9]+|[^\x00-\x7f]")


class Known:
    """Names, each with what stands in its place; a name may hold any characters.

    ``edges`` are characters besides letters and digits that, next to a name, make it a part of something else.
    """

    def __init__(self, edges: str = "") -> None:
        self._edges = frozenset(edges)
        self._names: dict[str, str] = {}
        #: First run of letters and digits of a name -> (where it begins in the name, length of the name), long ones first.
        self._places: dict[str, list[tuple[int, int]]] = defaultdict(list)

    def add(self, name: str, replacement: str) -> None:
        """Add a name; the first replacement given to a name stays."""
        key = name.lower()
        run = _RUN.search(key)
        if run is None or key in self._names or len(key) != len(name):
            return
        self._names[key] = replacement
        place = (run.start(), len(key))
        places = self._places[run[0]]
        if place not in places:
            places.append(place)
            places.sort(key=lambda entry: -entry[1])

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, replacement) of the names in a text, from left to right, none inside another."""
        lowered = text.lower()
        if self._places.keys().isdisjoint(_RUN.findall(lowered)):
            return
        if len(lowered) != len(text):  # a letter whose lower case is longer: places would not fit
            lowered = "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
        done = 0
        for run in _RUN.finditer(lowered):
            for offset, length in self._places.get(run[0], ()):
                start = run.start() - offset
                end = start + length
                if start >= done and lowered[start:end] in self._names and self._whole(text, start, end):
                    yield start, end, self._names[lowered[start:end]]
                    done = end
                    break

    def _whole(self, text: str, start: int, end: int) -> bool:
        return not (
            (start > 0 and self._continues(text[start - 1], text[start]))
            or (end < len(text) and self._continues(text[end], text[end - 1]))
        )

    def _continues(self, outside: str, inside: str) -> bool:
        return outside in self._edges or (_alphanumeric(outside) and _alphanumeric(inside))

    def replace(self, text: str) -> str:
        """Return the text with all names replaced."""
        made, done = [], 0
        for start, end, replacement in self.find(text):
            made += [text[done:start], replacement]
            done = end
        return "".join([*made, text[done:]]) if made else text


def _alphanumeric(char: str) -> bool:
    return char.isascii() and char.isalnum()
