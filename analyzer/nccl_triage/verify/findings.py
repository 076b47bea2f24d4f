"""Which cause a finding speaks for, by its kind: ``rules/verification/findings.yaml``."""

from __future__ import annotations

from functools import cache

from nccl_triage import resources
from nccl_triage.engine import nodes
from nccl_triage.errors import RuleError

#: The situation where none of the named ones holds.
OTHERWISE = "otherwise"
#: The table's name in errors.
FILE = "rules/verification/findings.yaml"


@cache
def table() -> dict[str, dict[str, str]]:
    """Return kind -> situation -> cause ("" for none); raises RuleError with the place of what is wrong."""
    path = resources.rules_dir() / "verification" / "findings.yaml"
    return read(path.read_text(encoding="utf-8"), FILE)


def read(text: str, label: str) -> dict[str, dict[str, str]]:
    """Return the table that a file holds; ``label`` is its name in errors."""
    found: dict[str, dict[str, str]] = {}
    for kind, node in nodes.parse(text, label).mapping().items():
        if isinstance(node.value, dict):
            situations = {name: part.text() for name, part in node.mapping().items()}
            if OTHERWISE not in situations:
                raise node.fail("the key {name!r} is missing", name=OTHERWISE)
        else:
            situations = {OTHERWISE: node.text()}
        found[kind] = situations
    return found


def cause_of(kind: str, situation: str = OTHERWISE) -> str:
    """Return the cause that a kind of finding speaks for in a situation; "" where it blames nobody."""
    situations = table().get(kind)
    if situations is None:
        raise RuleError("no cause is known for findings of the kind {kind!r}", where=FILE, kind=kind)
    return situations.get(situation, situations[OTHERWISE])
