"""Regular expressions that are compiled on first use: a run needs few of those that its modules define."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn")


class LazyPattern:
    """Stands for a compiled pattern; after the first use its methods are those of the pattern, at the same speed."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying or pickling looks for these, no user of a pattern does
            raise AttributeError(name)
        compiled = re.compile(self._source, self._flags)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)


def lazily(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that behaves as ``re.compile(source, flags)``; errors in the source are raised on first use."""
    return cast("re.Pattern[AnyStr]", LazyPattern(source, flags))
