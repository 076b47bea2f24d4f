"""Fills values into texts of both languages, with bytes and lists in readable form."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from nccl_triage.knowledge.entries import Text

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
#: Elements of a list that are shown, characters of a text.
_SHOWN, _LONGEST = 12, 300


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "bytes":
            return size(value)
        if format_spec == "percent":
            return f"{100 * float(value):.0f} %"
        if isinstance(value, (list, tuple)):
            more = ", .." if len(value) > _SHOWN else ""
            return ", ".join(map(str, value[:_SHOWN])) + more
        if isinstance(value, float) and not format_spec:
            return f"{value:g}"
        return str(format(value, format_spec))[:_LONGEST]


def size(value: float | None) -> str:
    """Return a number of bytes in the largest unit that leaves a whole number or three digits."""
    if value is None:
        return "unlimited"
    number, unit = float(value), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.3g} {_UNITS[unit]}" if number < 1000 else f"{number:.0f} {_UNITS[unit]}"


def names(text: Text) -> set[str]:
    """Return the names of the values that a text needs."""
    return {name for part in text.values() for _, name, _, _ in string.Formatter().parse(part) if name}


def fill(text: Text, values: Mapping[str, Any]) -> Text:
    """Return a text in both languages with its values in place; raises KeyError for one that is missing."""
    formatter = _Formatter()
    return {
        language: formatter.vformat(
            part, (), {k: v[language] if isinstance(v, dict) and language in v else v for k, v in values.items()}
        ).strip()
        for language, part in text.items()
    }


def unseen(
    whats: Mapping[str, Text], whys: Mapping[str, Text], note: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[Text, Text]:
    """Return what could not be seen and why, by the tables of both; words of a later release are shown as they are."""
    what, why = str(note.get("what", "")), str(note.get("why", ""))
    try:
        reason = fill(whys[why], values)
    except KeyError:
        reason = {"en": why, "zh": why}
    return whats.get(what, {"en": what, "zh": what}), reason
