"""Whole numbers that a log states: digits may go on without end, and some characters only look like digits."""

from __future__ import annotations

#: Digits of a number at most: more of them name no process, rank, size or time.
MOST_DIGITS = 18


def whole(text: str | None) -> int | None:
    """Return what decimal digits, after a sign or not, mean; None for anything else and for absurdly many of them."""
    if not text:
        return None
    digits = text[1:] if text[0] in "+-" else text
    return int(text) if len(digits) <= MOST_DIGITS and digits.isdecimal() else None
