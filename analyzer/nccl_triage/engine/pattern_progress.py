"""How far a pattern gets in a text that it does not match: the longest beginning of it that does."""

from __future__ import annotations

#: Seconds for the search of one beginning, and characters of a pattern that are tried.
_SECONDS, _MOST = 0.05, 600


def matched_beginning(source: str, text: str) -> str:
    """Return the longest beginning of a pattern that matches somewhere in a text, "" if none of three characters does."""
    import regex

    for end in range(min(len(source) - 1, _MOST), 2, -1):
        try:
            if regex.compile(source[:end]).search(text, timeout=_SECONDS) is not None:
                return source[:end]
        except (regex.error, TimeoutError):
            continue
    return ""
