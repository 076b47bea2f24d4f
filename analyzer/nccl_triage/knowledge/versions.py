"""Comparing versions as numbers."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping

from nccl_triage.knowledge.model import Bound
from nccl_triage.lazy_regex import lazily

_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}
_BOUND = lazily(r"^(?P<program>[a-z][\w-]*)\s*(?P<operator>>=|<=|==|>|<)\s*(?P<version>\d+(?:\.\d+)*)$")


def key(version: str) -> tuple[int, ...]:
    """Return a version as four numbers (``v2.21.5+cuda12.4`` -> (2, 21, 5, 0))."""
    numbers = [int(part) for part in re.findall(r"\d{1,9}", version.split("+")[0])[:4]]
    return tuple(numbers + [0] * (4 - len(numbers)))


def bound(text: str) -> Bound | None:
    """Return ``nccl >= 2.27`` as a bound, or None when it is none."""
    match = _BOUND.match(text.strip())
    return Bound(match["program"], match["operator"], match["version"]) if match else None


def holds(bounds: Iterable[Bound], versions: Mapping[str, str]) -> bool:
    """Tell whether all bounds hold; a bound on a program whose version is unknown does not."""
    return all(
        item.program in versions and _OPERATORS[item.operator](key(versions[item.program]), key(item.version))
        for item in bounds
    )


def contradicts(bounds: Iterable[Bound], versions: Mapping[str, str]) -> bool:
    """Tell whether a known version breaks one of the bounds."""
    return any(item.program in versions and not holds((item,), versions) for item in bounds)
