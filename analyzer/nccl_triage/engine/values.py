"""The functions of conditions that look at values alone: a premise, which knows nothing but one line, has no others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from nccl_triage.engine.expression import Missing


def _each(parts: Iterable[str | tuple[str, ...]]) -> Iterable[str]:
    """Yield texts that stand alone or in lists."""
    for part in parts:
        yield from (part,) if isinstance(part, str) else part


def _num(text: Any) -> float:
    if text is None:
        raise Missing("number")
    return float(int(text, 16)) if isinstance(text, str) and text.startswith("0x") else float(text)


def _length(value: Any) -> int:
    return 0 if value is None else len(value)


def _product(*numbers: Any) -> float:
    return prod(float(number) for number in numbers)


def _smallest(values: Any) -> float:
    return min(float(value) for value in values)


def _largest(values: Any) -> float:
    return max(float(value) for value in values)


def _lower(text: Any) -> str:
    return "" if text is None else str(text).lower()


def _starts(text: Any, *prefixes: str | tuple[str, ...]) -> bool:
    return text is not None and str(text).startswith(tuple(_each(prefixes)))


def _contains(text: Any, *parts: str | tuple[str, ...]) -> bool:
    return text is not None and any(part in str(text) for part in _each(parts))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "num": _num,
    "length": _length,
    "product": _product,
    "smallest": _smallest,
    "largest": _largest,
    "lower": _lower,
    "starts": _starts,
    "contains": _contains,
}
