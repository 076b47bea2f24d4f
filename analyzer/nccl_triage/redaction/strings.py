"""The strings of a report document: a walk through all of them, and what a reader sees of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from nccl_triage.lazy_regex import lazily

#: Sequences of ECMA-48, with an escape or as one 8-bit character: CSI; strings (OSC, DCS, SOS, PM, APC) with their end;
#: character sets and single functions (ESC 7, ESC =, ESC M); and an escape that begins nothing, which hides nothing
#: either. No string holds the beginning of another, so that each character is looked at once.
_HIDDEN = lazily(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b(?:[()*+./-][0-9A-Za-z<=>]|#[0-9]|%[@G8]| [F-N]|[\\[\\]PX^_\\\\0-9<=>|}~cDEHMNOZlmno])?"
    "|[\x80-\x9f\xad\u200b-\u200f\u2060-\u2064\ufeff]"
)


def plain(text: str) -> str:
    """Return the text as a reader sees it; the text itself when nothing in it is hidden."""
    if text.isascii() and "\x1b" not in text:
        return text
    return _HIDDEN.sub("", text)


_FOLD = bytes.maketrans(b"123456789", b"0" * 9)
#: Called with the key of a value, as ``texts`` gives it; returns the value to put there.
Change = Callable[[str, Any], Any]


def every_text(document: Any) -> tuple[set[str], list[list[str]]]:
    """Return all strings of a document, keys included, each once, and its lists of strings."""
    found: set[Any] = set()
    windows: list[list[str]] = []
    waiting = [document]
    while waiting:  # tens of thousands of values for each thousand ranks: no recursion, and the likeliest type first
        value = waiting.pop()
        kind = type(value)
        if kind is str:
            found.add(value)
        elif kind is dict:
            found.update(value)
            waiting.extend(value.values())
        elif kind is list or kind is tuple:
            waiting.extend(value)
            if len(value) > 1 and type(value[0]) is type(value[-1]) is str:
                windows.append([line if type(line) is str else "" for line in value])
    return {text for text in found if type(text) is str}, windows


def texts(document: Any) -> list[tuple[str, str]]:
    """Return (key, text) of every string of a document, ``hosts.name`` for a name in a mapping of hosts.

    Keys of mappings come as texts under ``hosts.*``; a list has the key under which it stands.
    """
    found: list[tuple[str, str]] = []

    def visit(value: Any, key: str) -> None:
        if isinstance(value, str):
            found.append((key, value))
        elif isinstance(value, dict):
            for name in sorted(value, key=str):
                found.append((below(key, "*"), str(name)))
                visit(value[name], below(key, str(name)))
        elif isinstance(value, (list, tuple)):
            for item in value:
                visit(item, key)

    visit(document, "")
    return found


def shape(text: str) -> str:
    """Return a text with all digits alike and what is not ASCII spoilt: equal for lines that differ in numbers only."""
    return text.encode("utf-8", "surrogatepass").translate(_FOLD).decode("latin-1")


@lru_cache(maxsize=1 << 14)
def below(key: str, name: str) -> str:
    """Return the key of a value in a mapping that stands under ``key``."""
    return f"{key.rpartition('.')[2]}.{name}"


def changed(value: Any, change: Change, key: str = "") -> Any:
    """Return the value with every mapping, list and string put through ``change``, wholes before their parts.

    What does not change is not copied: an untouched document is returned as it came.
    """
    if not isinstance(value, (str, dict, list, tuple)):
        return value
    value = change(key, value)
    if isinstance(value, dict):
        named = {name: changed(item, change, below(key, str(name))) for name, item in value.items()}
        return value if all(named[name] is item for name, item in value.items()) else named
    if isinstance(value, (list, tuple)):
        items = [changed(item, change, key) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value
