"""Templates of log lines: ``{{name}}`` is looked up, ``{{int 1 8}}`` and the like are drawn anew each time.

Draws: ``int LOW HIGH``, ``float LOW HIGH DIGITS``, ``hex DIGITS``, ``digits N``, ``pick A|B|C``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from random import Random

Values = Mapping[str, object]
Part = str | Callable[[Values, Random], str]

_FIELD = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)


def _int(words: list[str]) -> Part:
    low, high = int(words[0]), int(words[1])
    return lambda values, chance: str(chance.randint(low, high))


def _float(words: list[str]) -> Part:
    low, high, form = float(words[0]), float(words[1]), f".{words[2]}f"
    return lambda values, chance: format(low + (high - low) * chance.random(), form)


def _hex(words: list[str]) -> Part:
    bits, form = 4 * int(words[0]), f"0{words[0]}x"
    return lambda values, chance: format(chance.getrandbits(bits), form)


def _digits(words: list[str]) -> Part:
    count = int(words[0])
    limit, form = 10**count, f"0{count}d"
    return lambda values, chance: format(int(chance.random() * limit), form)


def _pick(words: list[str]) -> Part:
    choices = " ".join(words).split("|")
    return lambda values, chance: chance.choice(choices)


_DRAWS: dict[str, Callable[[list[str]], Part]] = {
    "int": _int,
    "float": _float,
    "hex": _hex,
    "digits": _digits,
    "pick": _pick,
}


def _part(expression: str) -> Part:
    first, *rest = expression.split(" ")
    if rest and first in _DRAWS:
        return _DRAWS[first](rest)

    def look_up(values: Values, chance: Random) -> str:
        return str(values[expression])

    return look_up


@cache
def compiled(text: str) -> tuple[Part, ...]:
    """Return the parts of a template: plain text and functions that give text."""
    parts: list[Part] = []
    end = 0
    for match in _FIELD.finditer(text):
        if match.start() > end:
            parts.append(text[end : match.start()])
        parts.append(_part(match[1]))
        end = match.end()
    if end < len(text):
        parts.append(text[end:])
    return tuple(parts)


def render(text: str, values: Values, chance: Random) -> str:
    """Fill in a template; raises KeyError with the name that ``values`` lacks."""
    return "".join(part if isinstance(part, str) else part(values, chance) for part in compiled(text))


def draw(expression: str, chance: Random) -> str:
    """Return one drawn value, from an expression such as ``int 1 8``; a text without a draw stands for itself."""
    if expression.split(" ", 1)[0] in _DRAWS:
        return render("{{" + expression + "}}", {}, chance)
    return render(expression, {}, chance)
