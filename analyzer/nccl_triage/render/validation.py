"""Validation of report documents from outside, as far as the formats rely on their form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nccl_triage.render.words import is_word

#: Maximum nesting of objects and lists; a report has about ten levels.
DEPTH = 40
#: Integers beyond 64 bits are written as floating-point numbers.
_LARGEST_INT = float(1 << 63)
#: Whole numbers that places in files, ranks and the like have, by which the formats count; not what a log merely states.
_COUNTED = frozenset(
    {"line", "end_line", "first_line", "marks", "rank", "ranks", "count", "lines", "number", "order", "logs", "total"}
)
_MOST_COUNTED = 10**15

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def problem(document: Any, schema: Schema) -> str | None:
    """Return where a document first breaks the shape, e.g. ``diagnoses[0].evidence[2].line``, or None."""
    if _too_deep(document):
        return "$"
    return next(_problems(document, schema, schema.get("$defs", {}), "$"), None)


def _too_deep(document: Any) -> bool:
    """Tell whether a value is nested deeper than any report: what renders it must not run out of stack."""
    level = [document]
    for _ in range(DEPTH):
        level = [
            item
            for value in level
            if isinstance(value, (dict, list))
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return True


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return abs(value) >= _LARGEST_INT
    return isinstance(value, _TYPES[name])


def _types(schema: Schema) -> list[str]:
    """Return the names of the types that a schema allows; of listed words their types alone are asked for."""
    named = schema.get("type")
    if named is not None:
        return [named] if isinstance(named, str) else list(named)
    words = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return [name for name in _TYPES if any(_is(word, name) for word in words)]


def _last_key(where: str) -> str:
    return where.rpartition(".")[2].partition("[")[0]


def _problems(value: Any, schema: Schema, defs: Mapping[str, Schema], where: str) -> Iterator[str]:
    """Yield the places below ``where`` whose value is missing, of another type or out of range."""
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    choices = [next(_problems(value, choice, defs, where), None) for choice in schema.get("anyOf", [])]
    if choices and None not in choices:
        # The longest place lies in the alternative that fits best: an object that is nearly right, not null.
        yield max(filter(None, choices), key=len)
        return
    types = _types(schema)
    if types and not any(_is(value, name) for name in types):
        yield where
        return
    if isinstance(value, (int, float)) and "integer" in types and _last_key(where) in _COUNTED:
        counts = isinstance(value, int) and abs(value) <= _MOST_COUNTED
        if not counts:
            yield where
            return
    words = schema.get("enum", [])
    if isinstance(value, str) and value not in words and any(isinstance(one, str) for one in words):
        # Newer programs may have further words, which are words all the same.
        if not value or not is_word(value):
            yield where
        return
    if isinstance(value, (int, float)) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield where
    elif isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (f"{where}.{key}" for key in schema.get("required", []) if key not in value)
        for key, item in value.items():
            rule = known.get(key, other)
            if isinstance(rule, Mapping):
                yield from _problems(item, rule, defs, f"{where}.{key}")
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield where
        for number, item in enumerate(value):
            yield from _problems(item, schema.get("items", {}), defs, f"{where}[{number}]")
