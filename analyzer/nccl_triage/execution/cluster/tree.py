"""Put together what many workers found, on the cluster: the driver receives a few large parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Parts that one merge takes, and parts that the driver takes at most when there is somebody to merge them.
FAN = 16


@dataclass(eq=False, slots=True)
class Part:
    """Findings that lie on the cluster (``reference``), those of the nodes ``of``; ``level``: merges behind it."""

    reference: Any
    of: tuple[str, ...]
    level: int = 0
    #: How often a merge with it failed.
    failed: int = 0


class Tree:
    """The parts that wait to be merged or taken."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def add(self, part: Part) -> None:
        """Take a part in."""
        self.parts.append(part)

    def next(self) -> list[Part]:
        """Take out the parts of the next merge, those with the fewest merges behind them; none when few are left."""
        mergeable = sorted((part for part in self.parts if not part.failed), key=lambda part: part.level)
        if len(mergeable) <= FAN:
            return []
        chosen = mergeable[:FAN]
        self.parts = [part for part in self.parts if part not in chosen]
        return chosen

    def merged(self, parts: list[Part], reference: Any) -> None:
        """Put the result of a merge in."""
        level = 1 + max(part.level for part in parts)
        self.parts.append(Part(reference, tuple(name for part in parts for name in part.of), level))

    def failed(self, parts: list[Part]) -> None:
        """Put the parts of a merge that failed back: the driver takes each by itself, since one of them may be lost."""
        for part in parts:
            part.failed += 1
        self.parts += parts
