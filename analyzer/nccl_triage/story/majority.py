"""Who stands apart from a majority: one comparison for ranks, hosts and records alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


def usual(values: Mapping[K, V], unheard: int = 0) -> V | None:
    """Return the value that more than half hold, None where no value has such a majority.

    ``unheard`` counts those who belong to the comparison and whose value is unknown: any of them may side with the
    others, so the majority must be one without them.
    """
    counted = Counter(values.values()).most_common(1)
    return counted[0][0] if counted and 2 * counted[0][1] > len(values) + unheard else None


def minority(values: Mapping[K, Hashable], unheard: int = 0) -> list[K]:
    """Return who holds another value than the majority: everybody without a majority, nobody where all agree."""
    if len(set(values.values())) < 2:
        return []
    common = usual(values, unheard)
    return [who for who, value in values.items() if common is None or value != common]
