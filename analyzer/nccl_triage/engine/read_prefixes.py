"""Reads the files of ``rules/prefixes``; errors name file and line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from nccl_triage.engine.fields import flag, identifier, optional_text, text_list
from nccl_triage.engine.line_prefixes import (
    CONDITIONS,
    COPIES,
    FIELDS,
    NUMBERS,
    READERS,
    Prefix,
    PrefixRules,
    PrefixSample,
)
from nccl_triage.engine.nodes import ErrorCollector, Node
from nccl_triage.engine.pattern import Pattern
from nccl_triage.engine.pattern_parts import check_number, group_in, read_files, read_pattern
from nccl_triage.engine.regex_analysis import groups_of
from nccl_triage.observations.event import Context

#: Prefixes at most: each may be tried on each line.
MAX_PREFIXES = 400
_CONTEXT = tuple(one.name for one in fields(Context) if one.name != "clock")
#: The keys that a prefix may have.
OPTIONAL = (
    *("source", "starts", "pattern", "reader", "sets", "gives", "believed", "inside", "speaker", "not_speakers"),
    *("named", "first", "behind", "copied", "cells"),
)


def read_prefixes(roots: Sequence[Node], user: bool, into: PrefixRules, errors: ErrorCollector) -> None:
    """Add the prefixes of all files of a folder of rules, which share their parts."""
    for root, file in read_files(roots, ("prefixes",), into.parts, errors):
        for item in file["prefixes"].items() if "prefixes" in file else ():
            with errors.collecting():
                found = _prefix(item, into.parts, user)
                if found.id in into.rows:
                    place = into.rows[found.id].where
                    raise item.fail("the prefix {id!r} already exists ({place})", id=found.id, place=place)
                into.rows[found.id] = found
        if len(into.rows) > MAX_PREFIXES:
            with errors.collecting():
                raise root.fail("more than {most} prefixes", most=MAX_PREFIXES)


def _prefix(node: Node, parts: dict[str, str], user: bool) -> Prefix:
    part = node.keys(("id", "meaning", "match", "not"), OPTIONAL)
    if ("pattern" in part) == ("reader" in part):
        raise node.fail("a prefix has either 'pattern' or 'reader'")
    if "reader" in part and "starts" not in part:
        raise node.fail("a prefix with 'reader' needs 'starts'")
    pattern = read_pattern(part["pattern"], parts, user) if "pattern" in part else None
    sets = _sets(part["sets"], pattern) if "sets" in part else {}
    speaker = _speaker(node, part, pattern)
    for group in groups_of(pattern.source) if pattern is not None else ():
        if group not in sets and group != speaker:
            raise part["pattern"].fail(
                "the group {group!r} sets no field",
                "list it under 'sets', or make it a group without a name",
                group=group,
            )
    return Prefix(
        id=identifier(part["id"]),
        meaning=part["meaning"].text(),
        where=node.where,
        pattern=pattern,
        source=optional_text(part, "source"),
        starts=optional_text(part, "starts"),
        sets=sets,
        gives=_gives(part["gives"]) if "gives" in part else {},
        reader=part["reader"].choice(READERS) if "reader" in part else None,
        believed=part["believed"].choice(CONDITIONS) if "believed" in part else None,
        inside=part["inside"].choice(CONDITIONS) if "inside" in part else None,
        speaker=speaker,
        not_speakers=read_pattern(part["not_speakers"], parts, user) if "not_speakers" in part else None,
        named=flag(part, "named"),
        first=flag(part, "first"),
        behind=optional_text(part, "behind"),
        copied=part["copied"].choice(COPIES) if "copied" in part else None,
        cells=flag(part, "cells"),
        user=user,
        match_samples=tuple(_sample(item) for item in part["match"].items()),
        not_samples=tuple(_lines(item) for item in part["not"].items()),
    )


def _sets(node: Node, pattern: Pattern | None) -> dict[str, str]:
    """Return field by group."""
    if pattern is None:
        raise node.fail("'sets' needs a pattern")
    found = {}
    for group, field in node.mapping().items():
        found[group_in(field, group, pattern)] = name = field.choice(FIELDS)
        if name in NUMBERS:
            check_number(field, group, pattern)
    return found


def _gives(node: Node) -> dict[str, str]:
    """Return text by field."""
    found = {}
    for name, value in node.mapping().items():
        if name not in FIELDS:
            raise value.fail("{text!r} is not one of {names}", text=name, names=", ".join(FIELDS))
        if name in NUMBERS and not (value.text().isascii() and value.text().isdigit()):
            raise value.fail("{value!r} is not a number", value=value.text())
        found[name] = value.text()
    return found


def _speaker(node: Node, part: dict[str, Node], pattern: Pattern | None) -> str | None:
    """Return the group that tells who prints: what looks like text needs one."""
    if "speaker" in part and pattern is not None:
        return group_in(part["speaker"], part["speaker"].text(), pattern)
    if "believed" in part or "inside" in part:
        raise node.fail("a prefix that looks like text needs 'speaker'")
    return None


def _sample(node: Node) -> PrefixSample:
    part = node.keys(("text",), ("line", "lines", "context", "extra"))
    if ("line" in part) == ("lines" in part):
        raise node.fail("a sample has either 'line' or 'lines'")
    context = {}
    for name, value in part["context"].mapping().items() if "context" in part else ():
        if name not in _CONTEXT:
            raise value.fail("{text!r} is not one of {names}", text=name, names=", ".join(_CONTEXT))
        context[name] = value.text()
    lines = tuple(part["line"].texts() if "line" in part else part["lines"].texts())
    return PrefixSample(lines, part["text"].text(), context, text_list(part, "extra"))


def _lines(node: Node) -> tuple[str, ...]:
    """Return the lines of a counter-sample: one, or several under ``lines``."""
    return tuple(node.keys(("lines",))["lines"].texts()) if isinstance(node.value, dict) else (node.text(),)
