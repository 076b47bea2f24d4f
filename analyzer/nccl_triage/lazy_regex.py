"""Regular expressions that are compiled on first use: a run needs few of those that its modules define.

``re`` compiles in Python, a sixth of a millisecond a pattern, and a verdict needs hundreds of them. So what it makes of
the patterns of a diagnosis is kept in the cache for later runs. ``re`` checks such code when it makes a pattern of it,
so code that somebody changed may match something else, but can do nothing else.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any, AnyStr, cast

# The standard library has no public parse tree and no public code of a pattern; the modules moved in Python 3.11.
_place = "re._%s" if sys.version_info >= (3, 11) else "sre_%s"
CONSTANTS: Any = importlib.import_module(_place % "constants")
PARSER: Any = importlib.import_module(_place % ("parser" if sys.version_info >= (3, 11) else "parse"))
COMPILER: Any = importlib.import_module(_place % ("compiler" if sys.version_info >= (3, 11) else "compile"))

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn")
#: Patterns that are kept at most: with more, those of other rules and versions are forgotten.
_MOST = 1000


#: What is raised for code that is no code of a pattern.
_UNFIT = (AttributeError, LookupError, OverflowError, RuntimeError, TypeError, ValueError)


class LazyPattern:
    """Stands for a compiled pattern; after the first use its methods are those of the pattern, at the same speed."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying or pickling looks for these, no user of a pattern does
            raise AttributeError(name)
        compiled = code.compiled(self._source, self._flags)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)


def lazily(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that behaves as ``re.compile(source, flags)``; errors in the source are raised on first use."""
    return cast("re.Pattern[AnyStr]", LazyPattern(source, flags))


class KeptCode:
    """What ``re`` made of patterns in earlier runs, by flags and source: flags, number and names of groups, and code."""

    def __init__(self) -> None:
        self._known: dict[str, Any] | None = None
        self._used: dict[str, Any] = {}
        self._new = False

    def recall(self) -> None:
        """Read the code that is kept; patterns that are compiled before are compiled by ``re``."""
        if self._known is None:
            from nccl_triage.engine import cache  # a command without a diagnosis need not wait for it

            self._known = cache.read_table(cache.name("patterns")) or {}

    def keep(self) -> None:
        """Keep the code of the patterns that were compiled since ``recall``."""
        if self._known is not None and self._new:
            from nccl_triage.engine import cache

            kept = {**self._known, **self._used}
            cache.write_table(cache.name("patterns"), kept if len(kept) <= _MOST else self._used)

    def compiled(self, source: str | bytes, flags: int = 0) -> Any:
        """Return what ``re.compile`` returns."""
        if self._known is None:
            return re.compile(source, flags)
        key = f"{int(flags)} {source!a}"
        row: Any = self._known.get(key)
        try:
            found = _made_of(source, row)
        except _UNFIT:  # none, or damaged
            try:
                row = _row(source, int(flags))
                found = _made_of(source, row)
            except _UNFIT:  # a Python whose ``re`` is another one, or a pattern that ``re`` refuses as well
                return re.compile(source, flags)
            self._new = True
        self._used[key] = row
        return found


def _row(source: str | bytes, flags: int) -> list[Any]:
    tree = PARSER.parse(source, flags)
    state = tree.state
    return [flags | state.flags, state.groups - 1, dict(state.groupdict), COMPILER._code(tree, flags)]


def _made_of(source: str | bytes, row: Any) -> Any:
    flags, count, names, words = row
    by_number: list[str | None] = [None] * (count + 1)
    for name, number in names.items():
        by_number[number] = name
    return COMPILER._sre.compile(source, flags, words, count, names, tuple(by_number))


#: The code that this process uses.
code = KeptCode()
