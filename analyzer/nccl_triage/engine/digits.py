"""Whether a regular expression minds which digits it meets, or takes any: told from its parse tree."""

from __future__ import annotations

import importlib
import re
import string
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

# Python 3.11 renamed the modules.
_where = "re._%s" if sys.version_info >= (3, 11) else "sre_%s"
constants: Any = importlib.import_module(_where % "constants")
parser: Any = importlib.import_module(_where % ("parser" if sys.version_info >= (3, 11) else "parse"))
compiler: Any = importlib.import_module(_where % ("compiler" if sys.version_info >= (3, 11) else "compile"))

#: A caret that negates no class and stands for itself nowhere.
_CARET = re.compile(r"(?<![\[\\])\^")
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


def anchored(pattern: str) -> bool:
    """Tell whether a pattern may ask for the beginning of a message."""
    return _CARET.search(pattern) is not None


@lru_cache(maxsize=4096)
def relaxed(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern that finds whatever ``pattern`` finds, anywhere, with any digits in place of those that it minds.

    None where there is no such pattern: for references to earlier groups, and for what cannot be parsed.
    """
    try:
        tree = parser.parse(pattern)
        _relax(tree)
        compiled: re.Pattern[str] = compiler.compile(tree)
    except Exception:
        return None
    return compiled


def _relax(items: Any) -> None:
    """Let each place of a parse tree that holds some digits hold all of them."""
    for index in range(len(items) - 1, -1, -1):
        op, argument = items[index]
        if op is constants.AT:
            del items[index]
        elif op is constants.SUBPATTERN:
            _relax(argument[3])
        elif op is constants.BRANCH:
            for branch in argument[1]:
                _relax(branch)
        elif not _minds(op, argument):
            continue
        elif op is constants.LITERAL:
            items[index] = (constants.IN, [(constants.CATEGORY, constants.CATEGORY_DIGIT)])
        elif op is constants.IN and argument[0][0] is not constants.NEGATE:
            argument.append((constants.CATEGORY, constants.CATEGORY_DIGIT))
        elif op in (constants.IN, constants.NOT_LITERAL):
            items[index] = (constants.ANY_ALL, None)
        elif op in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            _relax(argument[2])
        elif op is constants.ASSERT:
            _relax(argument[1])
        elif op is constants.ASSERT_NOT:
            del items[index]
        else:
            raise ValueError(f"{op} minds digits")
