"""Reads the files of ``rules/layouts``; errors name file and line."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_triage.engine.fields import identifier, optional_text, text_list
from nccl_triage.engine.nodes import ErrorCollector, Node
from nccl_triage.engine.path_layouts import (
    CONDITIONS,
    FIELDS,
    NUMBERS,
    READ_BY,
    LayoutRule,
    LayoutRules,
    NotSample,
    PathSample,
)
from nccl_triage.engine.pattern import Pattern
from nccl_triage.engine.pattern_parts import check_number, read_files, read_pattern
from nccl_triage.engine.regex_analysis import groups_of

#: Layouts and details at most: each may be tried on each path.
MAX_LAYOUTS = 400
#: The alternative name of a group that stands twice in a pattern.
_TWICE = "stream2"


def read_layouts(roots: Sequence[Node], user: bool, into: LayoutRules, errors: ErrorCollector) -> None:
    """Add the layouts and details of all files of a folder of rules, which share their parts."""
    for root, file in read_files(roots, ("layouts", "details"), into.parts, errors):
        for key in ("layouts", "details"):
            for item in file[key].items() if key in file else ():
                with errors.collecting():
                    found = _layout(item, key == "details", into.parts, user)
                    if found.id in into.rows:
                        place = into.rows[found.id].where
                        raise item.fail("the layout {id!r} already exists ({place})", id=found.id, place=place)
                    into.rows[found.id] = found
        if len(into.rows) > MAX_LAYOUTS:
            with errors.collecting():
                raise root.fail("more than {most} layouts", most=MAX_LAYOUTS)


def _layout(node: Node, detail: bool, parts: dict[str, str], user: bool) -> LayoutRule:
    required = ("id", "meaning", "pattern", "match", "not", *(() if detail else ("layout",)))
    part = node.keys(required, ("source", "needs", "when"))
    pattern = read_pattern(part["pattern"], parts, user, flags="(?i)")
    when = part["when"].choice(CONDITIONS) if "when" in part else None
    _check_groups(part["pattern"], pattern, when)
    needs = optional_text(part, "needs") or ""
    if needs != needs.lower():
        raise part["needs"].fail("'needs' is in lower case")
    return LayoutRule(
        id=identifier(part["id"]),
        meaning=part["meaning"].text(),
        where=node.where,
        pattern=pattern,
        layout=None if detail else identifier(part["layout"]),
        source=optional_text(part, "source"),
        needs=needs,
        when=when,
        user=user,
        match_samples=tuple(_sample(item) for item in part["match"].items()),
        not_samples=tuple(_not_sample(item) for item in part["not"].items()),
    )


def _check_groups(node: Node, pattern: Pattern, when: str | None) -> None:
    known = (*FIELDS, _TWICE, *READ_BY.get(when or "", ()))
    groups = groups_of(pattern.source)
    for group in groups:
        if group not in known:
            raise node.fail(
                "the group {group!r} sets no field", "groups are named {names}", group=group, names=", ".join(FIELDS)
            )
        if group in NUMBERS:
            check_number(node, group, pattern, most=None)
    needed = (*READ_BY.get(when or "", ()), *(("host",) if when == "host-has-number" else ("rank",) if when else ()))
    for group in needed:
        if group not in groups:
            raise node.fail("the condition {when!r} needs the group {group!r}", when=when, group=group)


def _sample(node: Node) -> PathSample:
    part = node.keys(("path",), ("gives", "beside"))
    gives = {name: value.text() for name, value in part["gives"].keys((), FIELDS).items()} if "gives" in part else {}
    return PathSample(part["path"].text(), gives, text_list(part, "beside"))


def _not_sample(node: Node) -> NotSample:
    if not isinstance(node.value, dict):
        return NotSample(node.text())
    part = node.keys(("path",), ("beside",))
    return NotSample(part["path"].text(), text_list(part, "beside"))
