"""Counts of what was right, their shares, and Wilson's interval of a share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

#: Standard normal quantile of a two-sided interval of 95 %.
Z95 = 1.959963984540054


class Tally(NamedTuple):
    """How many of how many were right."""

    right: int
    of: int

    @classmethod
    def over(cls, values: Iterable[bool | None]) -> Tally:
        """Count what is true of what is known; None is not known."""
        known = [value for value in values if value is not None]
        return cls(sum(known), len(known))

    @property
    def share(self) -> float | None:
        """The share right, None of nothing."""
        return self.right / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's score interval of 95 %, None of nothing."""
        return wilson(self.right, self.of) if self.of else None

    def as_dict(self) -> dict[str, Any]:
        """Return count, share and interval as plain values."""
        low, high = self.interval or (None, None)
        return {"right": self.right, "of": self.of, "share": self.share, "low": low, "high": high}


def wilson(right: int, of: int, z: float = Z95) -> tuple[float, float]:
    """Return Wilson's score interval of the share ``right`` / ``of`` (E. B. Wilson, 1927)."""
    if not 0 <= right <= of or of == 0:
        raise ValueError(f"{right} of {of} is no share")
    share, square = right / of, z * z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = z * math.sqrt(share * (1 - share) / of + square / (4 * of * of)) / (1 + square / of)
    # Exact at both ends, where rounding would leave them a little off.
    return (0.0 if right == 0 else middle - half), (1.0 if right == of else middle + half)
