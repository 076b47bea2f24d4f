"""Whole numbers that a log states: digits may go on without end, and some characters only look like digits."""

from __future__ import annotations

import re

#: Digits of a number at most: more of them name no process, rank, size or time.
MOST_DIGITS = 18
_BETWEEN = re.compile(r"[\s,\[\]]+")


def whole(text: str | None) -> int | None:
    """Return what decimal digits, after a sign or not, mean; None for anything else and for absurdly many of them."""
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
