"""Numbers: whole ones in logs, with absurdly many digits or characters that only look like digits; and confidence in words."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_triage.lazy_regex import lazily

#: Digits at most: longer numbers are no process, rank, size or time.
MOST_DIGITS = 18
#: From this confidence on, a cause that is not established is called very likely.
VERY_LIKELY = 0.95
_BETWEEN = lazily(r"[\s,\[\]]+")


def whole(text: str | None) -> int | None:
    """Return the value of decimal digits with an optional sign; None for anything else and for too many digits."""
    if not text:
        return None
    digits = text[1:] if text[0] in "+-" else text
    return int(text) if len(digits) <= MOST_DIGITS and digits.isdecimal() else None


def listed(text: str | None, most: int = 65536) -> list[int]:
    """Return the numbers of a list such as "0-3,7" or "[1, 3]" in order, ``most`` at most; other words are left out."""
    found: dict[int, None] = {}
    for part in _BETWEEN.split(text or ""):
        first, _, last = part.partition("-")
        low, high = whole(first), whole(last or first)
        if low is not None and high is not None:
            found.update(dict.fromkeys(range(low, min(high + 1, low + most - len(found)))))
    return list(found)


def median(values: Iterable[float]) -> float:
    """Return the middle one of at least one number; ``statistics`` is slow to import for it."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
