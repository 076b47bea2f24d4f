"""A linear model of features that something has or has not, as plain data, applied without scikit-learn or numpy.

``raw``: ``labels``, ``weights`` (feature -> one whole number for each label, in hundredths of log-odds) and
``intercepts`` (the same, without a feature).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

#: Weights are kept in hundredths.
UNIT = 100


def step(number: int, steps: Sequence[int]) -> str:
    """Return the first step that a number does not exceed, as the last part of a feature."""
    return next((str(one) for one in steps if number <= one), "more")


@dataclass(frozen=True, slots=True)
class Linear:
    """The log-odds of labels, up to what all of them share; features that it does not know say nothing."""

    labels: tuple[str, ...]
    weights: Mapping[str, Sequence[int]]
    intercepts: Sequence[int]

    def probabilities(self, names: Iterable[str]) -> dict[str, float]:
        """Return label -> probability."""
        sums = list(self.intercepts)
        for name in names:
            for index, weight in enumerate(self.weights.get(name, ())):
                sums[index] += weight
        top = max(sums)
        powers = [exp((one - top) / UNIT) for one in sums]
        total = sum(powers)
        return {label: power / total for label, power in zip(self.labels, powers, strict=True)}

    def reasons(self, names: Iterable[str], label: str, limit: int) -> list[str]:
        """Return the features that speak most for a label against the average label, the strongest first."""
        index, number = self.labels.index(label), len(self.labels)
        known = ((name, self.weights[name]) for name in names if name in self.weights)
        found = sorted((sum(row) / number - row[index], name) for name, row in known)
        return [name for against, name in found[:limit] if against < 0]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "labels": list(self.labels),
            "intercepts": list(self.intercepts),
            "weights": {name: list(row) for name, row in sorted(self.weights.items())},
        }


def of_dict(raw: Mapping[str, Any]) -> Linear:
    """Return the model of plain values."""
    return Linear(tuple(raw["labels"]), raw["weights"], tuple(raw["intercepts"]))
