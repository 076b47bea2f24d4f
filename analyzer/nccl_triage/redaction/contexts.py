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
from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction import walk
from nccl_triage.redaction.table import written_out
from nccl_triage.redaction.vocabulary import vocabulary

Kind = Literal["host", "user", "name", "repo", "path", "guid", "serial", "account", "phone"]
KINDS: tuple[Kind, ...] = ("host", "user", "name", "repo", "path", "guid", "serial", "account", "phone")
#: An item of a list, its brackets of numbers included, without the port or the slots behind it.
_ITEM = lazily(r"(?P<name>[^\s,\"'\[\]:]{1,253}(?:\[[\d,-]{1,400}\])?[^\s,\"'\[\]:]{0,64})[^\s,]{0,64}")


@dataclass(frozen=True, slots=True)
class Context:
    """A place where a name of one kind stands; the last group of ``pattern`` that matched is the name.

    What a ``weak`` place holds is no name when it is made of words of messages alone; ``several`` have a list of names.
    """

    id: str
    kind: Kind
    guards: tuple[str, ...]
    pattern: Pattern
    match_samples: tuple[str, ...]
    not_samples: tuple[str, ...]
    weak: bool = False
    several: bool = False

    def names(self, text: str) -> Iterator[str]:
        """Yield the names that stand at such places of a text."""
        for match in self.pattern.compiled.finditer(text):
            found = match[match.lastgroup]
            for name in (item["name"] for item in _ITEM.finditer(found)) if self.several else (found,):
                if not (self.weak and vocabulary().common(name, prose=True)):
                    yield name


def _context(node: Node, parts: dict[str, str]) -> Context:
    part = node.keys(("id", "kind", "guard", "pattern", "match", "not"), ("weak", "several"))
    return Context(
        id=part["id"].text(),
        kind=part["kind"].choice(KINDS),  # type: ignore[arg-type]
        guards=tuple(part["guard"].texts()),
        pattern=written_out(part["pattern"], parts),
        match_samples=tuple(part["match"].texts()),
        not_samples=tuple(part["not"].texts()),
        weak="weak" in part and part["weak"].flag(),
        several="several" in part and part["several"].flag(),
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
        for name in context.names(text):
            yield context.kind, name
