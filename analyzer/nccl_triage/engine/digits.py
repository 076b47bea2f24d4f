"""Whether a regular expression minds which digits it meets, or takes any: told from its parse tree."""

from __future__ import annotations

import importlib
import string
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

# Python 3.11 renamed the modules.
_where = "re._%s" if sys.version_info >= (3, 11) else "sre_%s"
constants: Any = importlib.import_module(_where % "constants")
parser: Any = importlib.import_module(_where % ("parser" if sys.version_info >= (3, 11) else "parse"))

_DIGITS = frozenset(map(ord, string.digits))


@lru_cache(maxsize=4096)
def minds_digits(pattern: str) -> bool:
    """Tell whether a match may depend on which digit stands where a digit stands.

    Literal digits, classes that hold some digits and not all, and references to earlier groups mind; classes that hold
    all digits do not. What cannot be parsed minds.
    """
    try:
        return _any(parser.parse(pattern))
    except Exception:  # a user's pattern in the syntax of ``regex``
        return True


def _any(items: Iterable[tuple[Any, Any]]) -> bool:
    return any(_minds(op, argument) for op, argument in items)


def _minds(op: Any, argument: Any) -> bool:
    if op in (constants.LITERAL, constants.NOT_LITERAL):
        return argument in _DIGITS
    if op is constants.IN:
        return _partial(argument)
    if op is constants.BRANCH:
        return any(_any(branch) for branch in argument[1])
    if op is constants.SUBPATTERN:
        return _any(argument[3])
    if op in (constants.MAX_REPEAT, constants.MIN_REPEAT, getattr(constants, "POSSESSIVE_REPEAT", None)):
        return _any(argument[2])
    if op in (constants.ASSERT, constants.ASSERT_NOT):
        return _any(argument[1])
    if op is getattr(constants, "ATOMIC_GROUP", None):
        return _any(argument)
    # Any character, the ends of a line and of words mind no digit; references and conditions do.
    return op not in (constants.ANY, constants.AT)


def _partial(items: Iterable[tuple[Any, Any]]) -> bool:
    """Tell whether a class of characters holds some digits, but not all."""
    held: set[int] = set()
    for op, argument in items:
        if op is constants.LITERAL:
            held.add(argument)
        elif op is constants.RANGE:
            held.update(code for code in _DIGITS if argument[0] <= code <= argument[1])
        elif op is constants.CATEGORY and argument in (
            constants.CATEGORY_DIGIT,
            constants.CATEGORY_WORD,
            constants.CATEGORY_NOT_SPACE,
        ):
            held |= _DIGITS
    return 0 < len(held & _DIGITS) < len(_DIGITS)
