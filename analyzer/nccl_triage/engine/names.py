"""Names of signatures as rules write them: whole, or with wildcards."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable


def expand(pattern: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that a name or glob stands for."""
    if not any(char in pattern for char in "*?["):
        return [pattern] if pattern in ids else []
    return fnmatch.filter(ids, pattern)
