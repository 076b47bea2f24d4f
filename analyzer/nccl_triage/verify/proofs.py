"""What a log proves by an error number: ``rules/verification/errnos.yaml``."""

from __future__ import annotations

from functools import cache

from nccl_triage import resources
from nccl_triage.engine import nodes

#: The table's name in errors.
_FILE = "rules/verification/errnos.yaml"


@cache
def proofs() -> dict[str, frozenset[str]]:
    """Return words of an error number -> causes that they prove; raises RuleError with the place of what is wrong."""
    path = resources.rules_dir() / "verification" / "errnos.yaml"
    tree = nodes.parse(path.read_text(encoding="utf-8"), _FILE)
    return {words: frozenset(node.texts()) for words, node in tree.mapping().items()}


def proves(text: str, cause: str) -> bool:
    """Tell whether a line that is evidence for a cause proves it by an error number."""
    return any(cause in causes and words in text for words, causes in proofs().items())
