"""Names of signatures as rules write them: a kind, an id, or a glob of ids."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

from nccl_triage.observations.kinds import KINDS


def is_glob(pattern: str) -> bool:
    """Tell whether a name holds wildcards."""
    return any(char in pattern for char in "*?[")


def expand(pattern: str, kinds: Mapping[str, str]) -> list[str]:
    """Return the ids that a name stands for; ``kinds`` tells the kind of every id there is."""
    if pattern in KINDS:
        return [name for name, kind in kinds.items() if kind == pattern]
    if not is_glob(pattern):
        return [pattern] if pattern in kinds else []
    return fnmatch.filter(kinds, pattern)


def stands_for(pattern: str, name: str, kind: str) -> bool:
    """Tell whether a name stands for one id, whose kind is given."""
    return pattern in (kind, name) or (is_glob(pattern) and fnmatch.fnmatchcase(name, pattern))
