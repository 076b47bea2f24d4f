"""What the parse tree of a regular expression tells: the literals and groups of every match, and whether digits matter.

The scan searches for the literals with a multi-pattern matcher and runs the expression only on lines that contain one.
It counts lines that differ only in digits together, unless an expression distinguishes some digits from others.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from nccl_triage.lazy_regex import COMPILER, CONSTANTS, PARSER, lazily

#: Limit of the number of alternative literals, and minimum length of a literal.
_MAX_SET = 48
_MIN_LENGTH = 3
#: A caret that negates no class and is not escaped.
_CARET = lazily(r"(?<![\[\\])\^")
_DIGITS = frozenset(map(ord, string.digits))
#: A class of all characters.
_ANYTHING = [(CONSTANTS.CATEGORY, CONSTANTS.CATEGORY_SPACE), (CONSTANTS.CATEGORY, CONSTANTS.CATEGORY_NOT_SPACE)]
_HEX_DIGITS = _DIGITS | frozenset(b"abcdefABCDEF")
_REPEATS = tuple(
    getattr(CONSTANTS, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(CONSTANTS, name)
)

_Found = tuple["set[str] | None", "set[str] | None"]


def _characters(op: Any, argument: Any) -> set[str] | None:
    """Return the characters that a literal or a small class can be."""
    if op is CONSTANTS.LITERAL:
        return {chr(argument)}
    found: set[str] = set()
    for kind, value in argument:
        if kind is CONSTANTS.LITERAL:
            found.add(chr(value))
        elif kind is CONSTANTS.RANGE and value[1] - value[0] < 4:
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
        if op is CONSTANTS.AT or op is CONSTANTS.ASSERT or op is CONSTANTS.ASSERT_NOT:
            continue
        if op is CONSTANTS.LITERAL or op is CONSTANTS.IN:
            if not extend(_characters(op, argument)):
                cut()
        elif op is CONSTANTS.SUBPATTERN:
            whole, factor = _walk(argument[-1]) if not (argument[1] & re.IGNORECASE) else (None, None)
            if not extend(whole):
                cut(factor)
        elif op is CONSTANTS.BRANCH:
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


class Anchors(NamedTuple):
    """Literals of which every match contains at least one; ``caseless`` ones are in lower case."""

    texts: frozenset[str]
    caseless: bool = False


def required_literals(pattern: str) -> Anchors | None:
    """Return the required literals of a pattern, or None when it has none of three characters or more."""
    tree = PARSER.parse(pattern)
    caseless = bool(tree.state.flags & re.IGNORECASE)
    whole, best = _walk(tree)
    found = _better(best, whole)
    if not found:
        return None
    if caseless:
        return Anchors(frozenset(text.lower() for text in found), caseless=True)
    return Anchors(frozenset(found))


@lru_cache(maxsize=4096)
def groups(pattern: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the groups of a pattern: of all, and of those that take part in every match.

    ``peer2``, ``peer3`` and ``peer_old`` count as ``peer`` too: they are its other wordings.
    """
    tree = PARSER.parse(pattern)
    names = {number: {name, plain_name(name)} for name, number in tree.state.groupdict.items()}
    return frozenset().union(*names.values()), frozenset(_certain(tree, names))


def plain_name(group: str) -> str:
    """Return the name of the group of which one is another wording."""
    return group.removesuffix("_old").rstrip("23")


def _certain(items: Iterable[tuple[Any, Any]], names: Mapping[int, set[str]]) -> set[str]:
    """Return the names of the groups that take part in every match of a sequence."""
    found: set[str] = set()
    for op, argument in items:
        if op is CONSTANTS.SUBPATTERN:
            found |= names.get(argument[0], set()) | _certain(argument[3], names)
        elif op in _REPEATS and argument[0] > 0:
            found |= _certain(argument[2], names)
        elif op is CONSTANTS.BRANCH:
            found |= set.intersection(*(_certain(branch, names) for branch in argument[1]))
        elif op is getattr(CONSTANTS, "ATOMIC_GROUP", None):
            found |= _certain(argument, names)
        elif op is CONSTANTS.ASSERT:
            found |= _certain(argument[1], names)
    return found


@lru_cache(maxsize=4096)
def depends_on_digits(pattern: str) -> bool:
    """Tell whether a match may depend on which digit stands where a digit stands.

    It may for literal digits, for classes that hold some digits but not all, for references to earlier groups, and for
    what cannot be parsed. It does not for classes that hold all digits.
    """
    try:
        return _any_depends_on(PARSER.parse(pattern), _DIGITS)
    except Exception:  # a user's pattern in the syntax of ``regex``
        return True


def _any_depends_on(items: Iterable[tuple[Any, Any]], digits: frozenset[int]) -> bool:
    return any(_node_depends_on(op, argument, digits) for op, argument in items)


def _node_depends_on(op: Any, argument: Any, digits: frozenset[int]) -> bool:
    """Tell whether a node may tell some of these digits from others."""
    if op in (CONSTANTS.LITERAL, CONSTANTS.NOT_LITERAL):
        return argument in digits
    if op is CONSTANTS.IN:
        return _holds_some(argument, digits)
    if op is CONSTANTS.BRANCH:
        return any(_any_depends_on(branch, digits) for branch in argument[1])
    if op is CONSTANTS.SUBPATTERN:
        return _any_depends_on(argument[3], digits)
    if op in (CONSTANTS.MAX_REPEAT, CONSTANTS.MIN_REPEAT, getattr(CONSTANTS, "POSSESSIVE_REPEAT", None)):
        return _any_depends_on(argument[2], digits)
    if op in (CONSTANTS.ASSERT, CONSTANTS.ASSERT_NOT):
        return _any_depends_on(argument[1], digits)
    if op is getattr(CONSTANTS, "ATOMIC_GROUP", None):
        return _any_depends_on(argument, digits)
    # "Any character" and the ends of lines and words do not depend on digits; references and conditions do.
    return op not in (CONSTANTS.ANY, CONSTANTS.AT)


def _holds_some(items: Iterable[tuple[Any, Any]], digits: frozenset[int]) -> bool:
    """Tell whether a class of characters holds some of these digits, but not all."""
    held: set[int] = set()
    for op, argument in items:
        if op is CONSTANTS.LITERAL:
            held.add(argument)
        elif op is CONSTANTS.RANGE:
            held.update(code for code in digits if argument[0] <= code <= argument[1])
        elif op is CONSTANTS.CATEGORY and argument is CONSTANTS.CATEGORY_DIGIT:
            held |= _DIGITS
        elif op is CONSTANTS.CATEGORY and argument in (CONSTANTS.CATEGORY_WORD, CONSTANTS.CATEGORY_NOT_SPACE):
            held |= digits
    return 0 < len(held & digits) < len(digits)


def may_need_start(pattern: str) -> bool:
    """Tell whether a pattern may require the beginning of a message."""
    return _CARET.search(pattern) is not None


@lru_cache(maxsize=4096)
def with_any_digits(pattern: str, hexadecimal: bool = False) -> re.Pattern[str] | None:
    """Return a pattern that finds whatever ``pattern`` finds, anywhere, with any digits in place of certain ones.

    ``hexadecimal``: the letters A to F are digits, too, wherever they stand. None if there is no such pattern: for
    references to earlier groups, and for what cannot be parsed.
    """
    try:
        tree = PARSER.parse(pattern)
        _allow_any(tree, _HEX_DIGITS if hexadecimal else _DIGITS)
        compiled: re.Pattern[str] = COMPILER.compile(tree)
    except Exception:
        return None
    return compiled


def _allow_any(items: Any, digits: frozenset[int]) -> None:
    """Change a parse tree so that each place that allows some of these digits allows all of them."""
    every: list[tuple[Any, Any]] = [(CONSTANTS.CATEGORY, CONSTANTS.CATEGORY_DIGIT)]
    every += [(CONSTANTS.LITERAL, code) for code in sorted(digits - _DIGITS)]
    for index in range(len(items) - 1, -1, -1):
        op, argument = items[index]
        if op is CONSTANTS.AT:
            del items[index]
        elif op is CONSTANTS.SUBPATTERN:
            _allow_any(argument[3], digits)
        elif op is CONSTANTS.BRANCH:
            for branch in argument[1]:
                _allow_any(branch, digits)
        elif not _node_depends_on(op, argument, digits):
            continue
        elif op is CONSTANTS.LITERAL:
            items[index] = (CONSTANTS.IN, list(every))
        elif op is CONSTANTS.IN and argument[0][0] is not CONSTANTS.NEGATE:
            items[index] = (op, [*argument, *every])  # the parser has one list for every \d: it stays as it is
        elif op in (CONSTANTS.IN, CONSTANTS.NOT_LITERAL):
            items[index] = (CONSTANTS.IN, list(_ANYTHING))
        elif op in (CONSTANTS.MAX_REPEAT, CONSTANTS.MIN_REPEAT):
            _allow_any(argument[2], digits)
        elif op is CONSTANTS.ASSERT:
            _allow_any(argument[1], digits)
        elif op is CONSTANTS.ASSERT_NOT:
            del items[index]
        else:
            raise ValueError(f"{op} depends on digits")


@lru_cache(maxsize=4096)
def least_width(pattern: str) -> int:
    """Return how many characters a match has at least; raises ``re.error`` for an invalid pattern."""
    return int(PARSER.parse(pattern).getwidth()[0])


@lru_cache(maxsize=4096)
def groups_of(pattern: str) -> tuple[str, ...]:
    """Return the named groups of a pattern, in order; raises ``re.error`` for an invalid pattern."""
    return tuple(PARSER.parse(pattern).state.groupdict)


def digits_of_group(pattern: str, group: str) -> int | None:
    """Return how many digits a named group can hold at most; None if it can hold anything else, but for a minus."""
    tree = PARSER.parse(pattern)
    found = _group(tree, tree.state.groupdict[group])
    if found is None or not _only_digits(found):
        return None
    return int(found.getwidth()[1])


def _group(items: Any, number: int) -> Any:
    """Return the content of a numbered group, None if it is not in this part of a parse tree."""
    for op, argument in items:
        if op is CONSTANTS.SUBPATTERN and argument[0] == number:
            return argument[3]
        if op is CONSTANTS.BRANCH:
            inner = argument[1]
        elif op is CONSTANTS.SUBPATTERN:
            inner = [argument[3]]
        elif op in _REPEATS:
            inner = [argument[2]]
        elif op is getattr(CONSTANTS, "ATOMIC_GROUP", None):
            inner = [argument]
        else:
            continue
        for part in inner:
            found = _group(part, number)
            if found is not None:
                return found
    return None


def _only_digits(items: Any) -> bool:
    """Tell whether a part of a parse tree matches digits only, with an optional minus before them."""
    for place, (op, argument) in enumerate(items):
        if op in _REPEATS:
            if list(argument[2]) == [(CONSTANTS.LITERAL, ord("-"))] and place == 0 and argument[1] == 1:
                continue
            fine = _only_digits(argument[2])
        elif op is CONSTANTS.LITERAL:
            fine = argument in _DIGITS
        elif op is CONSTANTS.IN:
            fine = all(
                (kind is CONSTANTS.CATEGORY and value is CONSTANTS.CATEGORY_DIGIT)
                or (kind is CONSTANTS.LITERAL and value in _DIGITS)
                or (kind is CONSTANTS.RANGE and {value[0], value[1]} <= _DIGITS)
                for kind, value in argument
            )
        elif op is CONSTANTS.BRANCH:
            fine = all(map(_only_digits, argument[1]))
        elif op is CONSTANTS.SUBPATTERN:
            fine = _only_digits(argument[3])
        else:
            fine = op in (CONSTANTS.AT, CONSTANTS.ASSERT, CONSTANTS.ASSERT_NOT)
        if not fine:
            return False
    return True
