"""Parts that patterns of a kind of rules share, and what any pattern for prefixes or paths must be."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nccl_triage.engine.nodes import ErrorCollector, Node
from nccl_triage.engine.pattern import Pattern, pattern_of
from nccl_triage.engine.regex_analysis import digits_of_group, groups_of, least_width
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import MOST_DIGITS

_PART = lazily(r"\{([a-z][a-z_]*)\}")


def read_files(
    roots: Sequence[Node], keys: Sequence[str], parts: dict[str, str], errors: ErrorCollector
) -> list[tuple[Node, dict[str, Node]]]:
    """Return each file with its keys, and add the parts of all of them, which their patterns share."""
    files = []
    for root in roots:
        with errors.collecting():
            files.append((root, root.keys((), ("parts", *keys))))
    for _, file in files:
        if "parts" in file:
            with errors.collecting():
                read_parts(file["parts"], parts)
    return files


def read_parts(node: Node, into: dict[str, str]) -> None:
    """Add the parts of a file; a part may use the ones before it."""
    for name, part in node.mapping().items():
        text = write_out(part, into)
        if into.setdefault(name, text) != text:
            raise part.fail("the part {name!r} already exists", name=name)


def write_out(node: Node, parts: dict[str, str]) -> str:
    """Return the text of a node with its ``{parts}`` written out."""

    def part(match: re.Match[str]) -> str:
        if match[1] not in parts:
            raise node.fail("there is no part {name!r}", name=match[1])
        return parts[match[1]]

    return _PART.sub(part, node.text().strip("\n"))


def read_pattern(node: Node, parts: dict[str, str], user: bool, flags: str = "") -> Pattern:
    """Return the pattern of a node; raises RuleError if it is invalid or matches an empty text."""
    source = flags + write_out(node, parts)
    pattern = pattern_of(Node(source, node.path, node.line), user)
    try:
        width = least_width(source)
    except re.error as error:
        raise node.fail("not a valid regular expression: {error}", error=error) from None
    if not width:
        raise node.fail("the pattern matches an empty text")
    return pattern


def group_in(node: Node, name: str, pattern: Pattern) -> str:
    """Return a name, which must be that of a group of the pattern."""
    if name not in groups_of(pattern.source):
        raise node.fail("{name!r} is not a named group of the pattern", name=name)
    return name


def check_number(node: Node, group: str, pattern: Pattern, most: int | None = MOST_DIGITS) -> None:
    """Raise RuleError if a group can hold anything but the digits of a number, or more of them than numbers have."""
    digits = digits_of_group(pattern.source, group)
    if digits is None:
        raise node.fail("the group {group!r} can hold something else than digits", group=group)
    if most is not None and digits > most:
        raise node.fail(
            "the group {group!r} can hold more than {most} digits",
            "limit the repetition in the group",
            group=group,
            most=most,
        )
