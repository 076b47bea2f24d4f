"""What is worked out of rule texts once and read from the cache afterwards: literals of patterns."""

from __future__ import annotations

import re

from nccl_triage.engine import cache
from nccl_triage.engine.literals import Anchors, required_literals
from nccl_triage.engine.nodes import Node


class AnchorTable:
    """Literals of patterns: derived once per set of rules, then read from the cache."""

    def __init__(self, digest: str) -> None:
        self._entry = cache.name("anchors", digest)
        self._known = cache.read_table(self._entry) or {}
        self._changed = False

    def of(self, node: Node) -> Anchors | None:
        """Return the literals of a pattern, or None when it requires none; raises RuleError for an invalid one."""
        source = node.text().strip("\n")
        found = self._known.get(source)
        if isinstance(found, list) and len(found) == 2 and isinstance(found[0], list):
            return Anchors(frozenset(map(str, found[0])), bool(found[1]))
        try:
            anchors = required_literals(source)
        except re.error as error:
            raise node.fail("not a valid regular expression: {error}", error=error) from None
        if anchors is not None:
            self._known[source] = [sorted(anchors.texts), anchors.caseless]
            self._changed = True
        return anchors

    def save(self) -> None:
        """Store what was not known yet."""
        if self._changed:
            cache.write_table(self._entry, self._known)
