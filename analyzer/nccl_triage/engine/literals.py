"""Literals that every match of a regular expression must contain, read from its parse tree.

The scan looks for these with a multi-pattern matcher and runs the expression only on lines that have one.
"""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from typing import Any

# The standard library has no public parse tree of a pattern; the modules moved in Python 3.11.
_where = "re._%s" if sys.version_info >= (3, 11) else "sre_%s"
_constants: Any = importlib.import_module(_where % ("constants"))
_parser: Any = importlib.import_module(_where % ("parser" if sys.version_info >= (3, 11) else "parse"))

_MAX_SET = 48
_MIN_LENGTH = 3

_Found = tuple["set[str] | None", "set[str] | None"]


def _characters(op: Any, argument: Any) -> set[str] | None:
    """Return the characters that a literal or a small class can be."""
    if op is _constants.LITERAL:
        return {chr(argument)}
    found: set[str] = set()
    for kind, value in argument:
        if kind is _constants.LITERAL:
            found.add(chr(value))
        elif kind is _constants.RANGE and value[1] - value[0] < 4:
            found |= {chr(code) for code in range(value[0], value[1] + 1)}
        else:
            return None
    return found if len(found) <= 4 else None


def _rank(literals: set[str]) -> tuple[int, int]:
    """Order sets of literals: the longer the shortest member, the rarer in text."""
    return (min(min(len(text) for text in literals), 24), -len(literals))


def _better(one: set[str] | None, two: set[str] | None) -> set[str] | None:
    if not two or any(len(text) < _MIN_LENGTH for text in two):
        return one
    if one is None or _rank(two) > _rank(one):
        return two
    return one


def _product(heads: set[str], tails: set[str]) -> set[str] | None:
    if len(heads) * len(tails) > _MAX_SET:
        return None
    return {head + tail for head in heads for tail in tails}


def _walk(sequence: Any) -> _Found:
    """Return (all strings the sequence can match or None, the best set of required factors or None)."""
    runs: set[str] = {""}
    best: set[str] | None = None
    exact = True

    def extend(options: set[str] | None) -> bool:
        nonlocal runs
        joined = _product(runs, options) if options is not None else None
        if joined is None:
            return False
        runs = joined
        return True

    def cut(factor: set[str] | None = None) -> None:
        nonlocal runs, best, exact
        best = _better(_better(best, runs), factor)
        runs, exact = {""}, False

    for op, argument in sequence:
        if op is _constants.AT or op is _constants.ASSERT or op is _constants.ASSERT_NOT:
            continue
        if op is _constants.LITERAL or op is _constants.IN:
            if not extend(_characters(op, argument)):
                cut()
        elif op is _constants.SUBPATTERN:
            whole, factor = _walk(argument[-1]) if not (argument[1] & re.IGNORECASE) else (None, None)
            if not extend(whole):
                cut(factor)
        elif op is _constants.BRANCH:
            parts = [_walk(part) for part in argument[1]]
            wholes = [whole for whole, _ in parts]
            union = None if any(w is None for w in wholes) else set().union(*[w for w in wholes if w])
            if any(w == {""} for w in wholes) and union is not None:
                union = union | {""}
            if not extend(union):
                factors = [_better(factor, whole) for whole, factor in parts]
                cut(set().union(*[f for f in factors if f]) if all(factors) else None)
        elif op in _REPEATS:
            low, high, sub = argument
            whole, factor = _walk(sub)
            if low == 0 and high == 1 and whole is not None and extend(whole | {""}):
                continue
            if low == high == 1 and extend(whole):
                continue
            if low >= 1 and whole is not None and extend(whole):
                cut()
                continue
            cut(factor if low >= 1 else None)
        else:
            cut()
    if exact:
        return runs, _better(None, runs) or best
    cut()
    return None, best


_REPEATS = tuple(
    getattr(_constants, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(_constants, name)
)


@dataclass(frozen=True, slots=True)
class Anchors:
    """Literals of which every match contains at least one; ``caseless`` ones are in lower case."""

    texts: frozenset[str]
    caseless: bool = False


def required_literals(pattern: str) -> Anchors | None:
    """Return the required literals of a pattern, or None when it has none of three characters or more."""
    tree = _parser.parse(pattern)
    caseless = bool(tree.state.flags & re.IGNORECASE)
    whole, best = _walk(tree)
    found = _better(best, whole)
    if not found:
        return None
    if caseless:
        return Anchors(frozenset(text.lower() for text in found), caseless=True)
    return Anchors(frozenset(found))
