"""Where in a text a name stands: the rows of ``rules/redaction/names.yaml``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from nccl_triage import resources
from nccl_triage.engine import nodes
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.pattern import Pattern
from nccl_triage.redaction import walk
from nccl_triage.redaction.table import written_out

Kind = Literal["host", "user", "name", "path", "guid", "serial"]
KINDS: tuple[Kind, ...] = ("host", "user", "name", "path", "guid", "serial")


@dataclass(frozen=True, slots=True)
class Context:
    """A place where a name of one kind stands; the last group of ``pattern`` that matched is the name."""

    id: str
    kind: Kind
    guards: tuple[str, ...]
    pattern: Pattern
    match_samples: tuple[str, ...]
    not_samples: tuple[str, ...]


def _context(node: Node, parts: dict[str, str]) -> Context:
    part = node.keys(("id", "kind", "guard", "pattern", "match", "not"))
    return Context(
        id=part["id"].text(),
        kind=part["kind"].choice(KINDS),  # type: ignore[arg-type]
        guards=tuple(part["guard"].texts()),
        pattern=written_out(part["pattern"], parts),
        match_samples=tuple(part["match"].texts()),
        not_samples=tuple(part["not"].texts()),
    )


@cache
def contexts() -> tuple[Context, ...]:
    """Return all rows; raises RuleError when the file is wrong."""
    text = (resources.rules_dir() / "redaction" / "names.yaml").read_text(encoding="utf-8")
    root = nodes.parse(text, "rules/redaction/names.yaml").keys(("parts", "names"))
    parts = {name: node.text() for name, node in root["parts"].mapping().items()}
    return tuple(_context(node, parts) for node in root["names"].items())


@lru_cache(maxsize=1 << 14)
def _contexts_of(shape: str) -> tuple[Context, ...]:
    lowered = shape.lower()
    return tuple(row for row in contexts() if any(walk.shape(guard) in lowered for guard in row.guards))


def names_in(text: str) -> Iterator[tuple[Kind, str]]:
    """Yield the names in a text with their kinds."""
    for context in _contexts_of(walk.shape(text)):
        for match in context.pattern.compiled.finditer(text):
            yield context.kind, match[match.lastgroup]
