"""Who stands out among equals: by the ratio to the median of the others, and a least difference, never by a fixed band."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def others(values: Mapping[Key, float], key: Key) -> float:
    """Return the median of the values of all others (of an even number the lower one)."""
    return statistics.median_low([value for other, value in values.items() if other != key])


def above(values: Mapping[Key, float], ratio: float, least: float = 0.0) -> list[Key]:
    """Return whose value is ``ratio`` times the median of the others, and ``least`` more, at least; biggest first."""
    found = [
        key
        for key, value in values.items()
        if len(values) > 1 and value >= ratio * (usual := others(values, key)) and value - usual >= least
    ]
    return sorted(found, key=lambda key: -values[key])


def below(values: Mapping[Key, float], ratio: float, least: float = 0.0) -> list[Key]:
    """Return of whose value the median of the others is ``ratio`` times, and ``least`` more, at least; smallest first."""
    found = [
        key
        for key, value in values.items()
        if len(values) > 1 and (usual := others(values, key)) >= ratio * value and usual - value >= least
    ]
    return sorted(found, key=lambda key: values[key])
