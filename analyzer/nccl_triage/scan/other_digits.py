"""The same line with other digits, as another line of its shape may have them."""

from __future__ import annotations

from random import Random

from nccl_triage.lazy_regex import lazily
from nccl_triage.scan.digit_folding import NUMBER_SOURCE

_NUMBER = lazily(NUMBER_SOURCE)
#: Other digits for all, none of which becomes a leading zero: no two of the eight agree in one but in that of 0.
_OTHERS = tuple(
    str.maketrans("0123456789abcdefABCDEF", f"{n + 1}{'123456789'[n + 1 :]}{'123456789'[: n + 1]}bcdefabcdefa")
    for n in range(8)
)
_CLOCK = r"(?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,][0-9]{1,9})?"
_DATE = (
    r"(?:(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[ T_]|(?P<us>[0-9]{2}/[0-9]{2}/)[0-9]{4} "
    r"|[A-Z][a-z]{2}\s+(?P<date>[0-9]{1,2}) (?P<then>[0-9]{4} )?|(?P<short>[0-9]{3,4}|[0-9]{2}-[0-9]{2}) )"
)
#: A date and a time of day, in the ways that logs write them.
STAMP = lazily(_DATE + _CLOCK + r"(?: [0-9]{4}\b)?")


def revalued(line: str, turn: int) -> str:
    """Return a line with other digits everywhere, as many as before; stamps stay such as a clock may show.

    Equal numbers get different digits in one of the turns 0 and 1 at least, so that it shows which of them is meant;
    of a line with more than 64 numbers turn 2 still tells those apart that the first two do not.
    """
    parts: list[str] = []
    behind = 0
    for index, number in enumerate(_NUMBER.finditer(line)):
        start, end = number.span()
        start += 2 * line.startswith("0x", start, end)
        steps = (index & 7, index >> 3 & 7, index + 3 + (index >> 6) & 7)[turn]
        parts += [line[behind:start], line[start:end].translate(_OTHERS[steps])]
        behind = end
    other = "".join((*parts, line[behind:]))
    chance = Random(turn)
    for stamp in STAMP.finditer(line):
        for name in filter(stamp.group, stamp.groupdict()):
            start, end = stamp.span(name)
            other = other[:start] + _moment(name, stamp[name], chance) + other[end:]
    return other


def _moment(name: str, value: str, chance: Random) -> str:
    """Return another value of a part of a stamp, with as many digits."""
    if name == "clock":
        return f"{chance.randrange(10, 24)}:{chance.randrange(10, 60)}:{chance.randrange(10, 60)}"
    if name in ("year", "then"):
        return value.replace(value[:4], str(chance.randrange(2001, 2037)), 1)
    month, day = chance.randrange(10, 13), chance.randrange(10, 29)
    if name == "us":
        return f"{month}/{day}/"
    if name == "short":
        return f"{month}-{day}" if "-" in value else f"{month if len(value) == 4 else chance.randrange(1, 10)}{day}"
    if len(value) == 1:
        return str(chance.randrange(1, 10))
    return str(month if name == "month" else day)
