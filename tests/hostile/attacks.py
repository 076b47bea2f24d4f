"""Texts that make a regular expression try as much as it can: what it repeats, many times, then a mismatch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from nccl_triage.lazy_regex import CONSTANTS as _constants
from nccl_triage.lazy_regex import PARSER as _parser

_REPEATS = tuple(
    getattr(_constants, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(_constants, name)
)
_CLASSES = {
    _constants.CATEGORY_DIGIT: "7",
    _constants.CATEGORY_SPACE: " ",
    _constants.CATEGORY_WORD: "a",
    _constants.CATEGORY_NOT_DIGIT: "a",
    _constants.CATEGORY_NOT_SPACE: "a",
    _constants.CATEGORY_NOT_WORD: " ",
}
#: Tried in order for what a class leaves open.
_ANY = "a7 :.-/,[(=\"'x"
#: A repeat that ends earlier than this cannot be driven far.
_LONG = 16
#: How often what stands in front of a repeat is repeated itself: as little as it may be, and often.
_LEAST = (0, 24)
#: Ends of attacks: characters at which most patterns give up.
_ENDS = ("\x00", "!")


def _member(argument: Any, variant: int) -> str:
    """Return a character of a class; ``variant`` chooses among its members."""
    if argument[0][0] is _constants.NEGATE:
        text = "".join(chr(value) for kind, value in argument[1:] if kind is _constants.LITERAL)
        spaces = any(kind is _constants.CATEGORY and "SPACE" in str(value) for kind, value in argument[1:])
        free = [char for char in _ANY if char not in text and not (spaces and char == " ")]
        return free[variant % len(free)]
    found: list[str] = []
    for kind, value in argument:
        if kind is _constants.LITERAL:
            found.append(chr(value))
        elif kind is _constants.RANGE:
            found.append(chr(value[0]))
        elif kind is _constants.CATEGORY:
            found.append(_CLASSES[value])
    return found[variant % len(found)]


def sample(tree: Any, variant: int = 0, least: int = 0) -> str:
    """Return a text that the sequence matches, look-arounds left aside; repeats of nothing at least ``least`` times."""
    made: list[str] = []
    for op, argument in tree:
        if op is _constants.LITERAL:
            made.append(chr(argument))
        elif op is _constants.NOT_LITERAL:
            made.append("a" if argument != ord("a") else "b")
        elif op is _constants.ANY:
            made.append(_ANY[variant % len(_ANY)])
        elif op is _constants.IN:
            made.append(_member(argument, variant))
        elif op is _constants.BRANCH:
            made.append(sample(argument[1][variant % len(argument[1])], variant, least))
        elif op is _constants.SUBPATTERN:
            made.append(sample(argument[-1], variant, least))
        elif op in _REPEATS:
            low, high, inside = argument
            made.append(sample(inside, variant, least) * min(max(low, least), int(high)))
        elif op is getattr(_constants, "ATOMIC_GROUP", None):
            made.append(sample(argument, variant, least))
    return "".join(made)


def _repeats(tree: Any, before: str, variant: int, least: int) -> Iterator[tuple[str, str]]:
    """Yield (what comes before, what is repeated) of every long repeat of a sequence, inner ones too."""
    for op, argument in tree:
        if op in _REPEATS:
            _, high, inside = argument
            if int(high) > _LONG:
                yield before, sample(inside, variant, 1)
            yield from _repeats(inside, before, variant, least)
        elif op is _constants.BRANCH:
            for branch in argument[1]:
                yield from _repeats(branch, before, variant, least)
        elif op is _constants.SUBPATTERN:
            yield from _repeats(argument[-1], before, variant, least)
        elif op in (_constants.ASSERT, _constants.ASSERT_NOT):
            yield from _repeats(argument[1], before, variant, least)
        before += sample([(op, argument)], variant, least)


def attacks(source: str, length: int, flags: int = 0, variants: int = 3) -> Iterator[str]:
    """Yield texts of about ``length`` characters that exhaust the repeats of a pattern, one after the other."""
    tree = _parser.parse(source, flags)
    seen: set[tuple[str, str]] = set()
    for variant, least in product(range(variants), _LEAST):
        for before, unit in _repeats(tree, "", variant, least):
            if not unit or (before, unit) in seen:
                continue
            seen.add((before, unit))
            end = _ENDS[variant % len(_ENDS)]
            yield before + unit * ((length - len(before)) // len(unit)) + end
            # The beginning again and again, too: a search starts anew at each.
            for again in (before + unit * 3, before) if before else ():
                yield again * (length // len(again)) + end
