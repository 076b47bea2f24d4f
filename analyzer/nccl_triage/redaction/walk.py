"""Through every string of a report document, keys included, in an order that its JSON form keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

#: Called with the key under which a value stands (that of the list for its items); returns the value to put there.
Change = Callable[[str, Any], Any]


def every_text(document: Any) -> set[str]:
    """Return all strings of a document, keys included, each once."""
    found: set[Any] = set()
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
    return {text for text in found if type(text) is str}


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key, text) of every string below a value; a mapping's keys come as texts of the mapping."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            yield key, str(name)
            yield from texts(value[name], str(name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item, key)


def changed(value: Any, change: Change, key: str = "") -> Any:
    """Return the value with every mapping, list and string put through ``change``, wholes before their parts.

    What does not change is not copied: an untouched document is returned as it came.
    """
    if not isinstance(value, (str, dict, list, tuple)):
        return value
    value = change(key, value)
    if isinstance(value, dict):
        named = {name: changed(item, change, str(name)) for name, item in value.items()}
        return value if all(named[name] is item for name, item in value.items()) else named
    if isinstance(value, (list, tuple)):
        items = [changed(item, change, key) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value
