"""Fold a message into its template: numbers, addresses, paths and pointers give way to place-holders.

Two lines that one statement of a program printed have one template. Small numbers that name a kind of error
(``status=12``, ``error 802``, ``exitcode: -9``) stay: they are words of the message, not values.
"""

from __future__ import annotations

import re
from functools import lru_cache

from nccl_triage.lazy_regex import lazily

#: Characters of a message that are folded; what tells messages apart stands at their beginning.
MAX_MESSAGE = 400

_CODE = lazily(
    r"\b(?P<word>status|error|errno|code|exitcode|exit code|return code|signal|xid|sxid|vendor err|err|version)"
    r"(?P<between>[ =:(]{1,3})(?P<number>-?\d{1,4})\b(?!\.\d)"
)
_FOLDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (lazily(r"[a-z][a-z0-9+.-]*://[^\s'\"<>)\]]+"), " <url> "),
    (lazily(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), " <id> "),
    (lazily(r"\[?\b(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{0,4}\b\]?|\bfe80::[0-9a-f:%\w]*"), " <address> "),
    (lazily(r"\b\d{1,3}(?:\.\d{1,3}){3}(?:<\d+>|:\d+)?"), " <address> "),
    (lazily(r"\b\d{4}-\d\d-\d\d[t ]\d\d:\d\d:\d\d(?:[.,]\d+)?z?"), " <time> "),
    (lazily(r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"), " <time> "),
    (lazily(r"(?:\.{0,2}/)(?:[\w.@+-]+/)*(?P<name>[\w.@+-]+)"), r" \g<name> "),
    (lazily(r"\b0x[0-9a-f]+\b"), " <pointer> "),
    (lazily(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b"), " <id> "),
    (lazily(r"(?<![a-z_<])[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?"), "#"),
)
_FOLD_DIGITS = {ord(digit): "0" for digit in "123456789"}
#: Digits that stay where they follow a letter (int8, cuda12), and those that other folds look for.
_NAMES = lazily(r"[a-z_<]\d|(?<!\w)\0x(?:(?![0-9a-f]+\b)\d)?|\bfe\d\d")
_SPACE = lazily(r"\s+")
_WORD = lazily(r"<[a-z]+>|[a-z_][a-z0-9_]*(?:[.=-][a-z0-9_]+)*|[一-鿿]")

#: What parts the words of a name, and the words of a name that is written in one with capitals.
_SEAMS, _CAPITALS = lazily(r"[._=-]+"), lazily(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LETTERS = lazily(r"[A-Za-z]+")
#: Minimum length of a part.
_MIN_PART = 3


def template(message: str) -> str:
    """Return the message in lower case with everything folded that varies from run to run."""
    text = message[:MAX_MESSAGE].lower()
    text = _CODE.sub(_keep_code, text)
    for pattern, replacement in _FOLDS:
        text = pattern.sub(replacement, text)
    return _SPACE.sub(" ", text).strip()


def key(message: str) -> tuple[object, ...]:
    """Return a key that is made far faster: messages that share it have the same template."""
    text = message[:MAX_MESSAGE].lower()
    folded = text.replace("0x", "\0x").translate(_FOLD_DIGITS)  # 8x is no pointer
    return folded, *[text[start:end] for start, end in _telling(folded)]


@lru_cache(maxsize=4096)
def _telling(folded: str) -> tuple[tuple[int, int], ...]:
    """Return where digits stand that tell templates apart, in all messages that differ in digits alone."""
    return tuple(found.span() for pattern in (_CODE, _NAMES) for found in pattern.finditer(folded))


def _keep_code(found: re.Match[str]) -> str:
    number = found["number"].replace("-", "minus")
    return f"{found['word'].replace(' ', '_')}={_spelt(number)}"


def _spelt(number: str) -> str:
    """Return a number as letters, which no later fold takes for a value."""
    return "".join("abcdefghij"[int(char)] if char.isdigit() else char for char in number)


def words(folded: str) -> list[str]:
    """Return the words of a template; Chinese characters stand for themselves."""
    return [word for word in _WORD.findall(folded) if len(word) > 1 or not word.isascii()]


def spoken(message: str) -> list[str]:
    """Return the words of a message, and the parts of the names in it."""
    whole = words(template(message))
    found = list(whole)
    for word in whole:
        parts = _SEAMS.split(word)
        if len(parts) > 1:
            found += [part for part in parts if len(part) >= _MIN_PART]
    for name in _LETTERS.findall(message[:MAX_MESSAGE]):
        parts = _CAPITALS.findall(name)
        if len(parts) > 1:
            found += [part.lower() for part in parts if len(part) >= _MIN_PART]
    return found
