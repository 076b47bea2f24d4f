"""Which patterns can take exponential time: those that repeat a group which repeats inside, with nothing to tell its rounds apart.

``(?:[a-z]+-)*`` is harmless, as each round ends with a character that the repetition inside cannot match; ``(?:[a-z]+-?)*``
is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from nccl_triage.lazy_regex import CONSTANTS, PARSER

_REPEATS = tuple(getattr(CONSTANTS, name) for name in ("MAX_REPEAT", "MIN_REPEAT"))
_LOOKS = (CONSTANTS.AT, CONSTANTS.ASSERT, CONSTANTS.ASSERT_NOT)
#: From so many rounds on, the repetition of a repetition is dangerous.
_MANY = 16
#: The characters that are distinguished; others are taken together.
_CHARACTERS = frozenset(map(chr, range(128))) | {"\u00e9"}
_TESTS = {
    CONSTANTS.CATEGORY_DIGIT: str.isdigit,
    CONSTANTS.CATEGORY_SPACE: str.isspace,
    CONSTANTS.CATEGORY_WORD: lambda text: text.isalnum() or text == "_",
}
_OPPOSITES = {
    CONSTANTS.CATEGORY_NOT_DIGIT: CONSTANTS.CATEGORY_DIGIT,
    CONSTANTS.CATEGORY_NOT_SPACE: CONSTANTS.CATEGORY_SPACE,
    CONSTANTS.CATEGORY_NOT_WORD: CONSTANTS.CATEGORY_WORD,
}


@lru_cache(maxsize=4096)
def may_explode(pattern: str) -> bool:
    """Tell whether a pattern repeats a group that repeats inside, so that a text can be split in many ways."""
    return any(_dangerous(body) for body in _repeated(PARSER.parse(pattern)))


def _repeated(items: Any) -> Iterator[Any]:
    """Yield what is repeated many times, at any depth."""
    for op, argument in items:
        if op in _REPEATS and argument[1] >= _MANY:
            yield argument[2]
        for part in _parts(op, argument):
            yield from _repeated(part)


def _parts(op: Any, argument: Any) -> list[Any]:
    """Return the sequences that a node of a parse tree contains."""
    if op is CONSTANTS.BRANCH:
        return list(argument[1])
    if op is CONSTANTS.SUBPATTERN:
        return [argument[3]]
    if op in _REPEATS:
        return [argument[2]]
    if op in (CONSTANTS.ASSERT, CONSTANTS.ASSERT_NOT):
        return [argument[1]]
    return []


def _dangerous(body: Any) -> bool:
    """Tell whether a body that is repeated repeats inside, and none of its ends separates one round from the next."""
    items = [item for item in _flat(body) if item[0] not in _LOOKS]
    inside = frozenset[str]().union(
        *(_matched(argument[2]) for op, argument in items if op in _REPEATS and argument[1] >= _MANY)
    )
    for op, argument in items:
        if op is CONSTANTS.BRANCH:
            inside |= frozenset[str]().union(
                *(_matched(part) for part in argument[1] if any(True for _ in _repeated(part)))
            )
    if not inside:
        return False
    ends = [items[0], items[-1]]
    return all(
        op not in (CONSTANTS.LITERAL, CONSTANTS.IN, CONSTANTS.NOT_LITERAL) or _matched([(op, argument)]) & inside
        for op, argument in ends
    )


def _flat(items: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the nodes of a sequence, groups opened."""
    for op, argument in items:
        if op is CONSTANTS.SUBPATTERN:
            yield from _flat(argument[3])
        else:
            yield op, argument


def _matched(items: Any) -> frozenset[str]:
    """Return the characters that may stand in a text that a sequence matches."""
    found: frozenset[str] = frozenset()
    for op, argument in items:
        if op is CONSTANTS.LITERAL:
            found |= {chr(argument)}
        elif op is CONSTANTS.NOT_LITERAL:
            found |= _CHARACTERS - {chr(argument)}
        elif op is CONSTANTS.ANY:
            found |= _CHARACTERS
        elif op is CONSTANTS.IN:
            found |= _of_class(argument)
        elif op not in _LOOKS:
            parts = _parts(op, argument)
            found |= frozenset[str]().union(*map(_matched, parts)) if parts else _CHARACTERS
    return found


def _of_class(items: Any) -> frozenset[str]:
    held: set[str] = set()
    negated = False
    for op, argument in items:
        if op is CONSTANTS.NEGATE:
            negated = True
        elif op is CONSTANTS.LITERAL:
            held.add(chr(argument))
        elif op is CONSTANTS.RANGE:
            held |= {char for char in _CHARACTERS if argument[0] <= ord(char) <= argument[1]}
        elif argument in _TESTS:
            held |= set(filter(_TESTS[argument], _CHARACTERS))
        elif argument in _OPPOSITES:
            held |= _CHARACTERS - set(filter(_TESTS[_OPPOSITES[argument]], _CHARACTERS))
    return _CHARACTERS - held if negated else frozenset(held)
