"""The knowledge's files as trees of nodes, parsed once and kept in the cache of the rules."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

from nccl_triage import resources
from nccl_triage.engine import cache, nodes
from nccl_triage.engine.nodes import Node
from nccl_triage.errors import RuleError


def _texts(folder: str) -> list[tuple[str, str]]:
    """Return (display path, text) of the YAML files of one folder below ``rules/``, in a fixed order."""
    entry = resources.rules_dir() / folder
    found: list[tuple[str, str]] = []
    for file in sorted(entry.iterdir(), key=lambda e: e.name) if entry.is_dir() else ():
        if file.name.endswith((".yaml", ".yml")):
            path = f"rules/{folder}/{file.name}"
            try:
                found.append((path, file.read_text(encoding="utf-8")))
            except (OSError, UnicodeDecodeError) as error:
                raise RuleError("cannot be read: {error}", where=path, error=error) from None
    return found


def packed(folder: str, use_cache: bool = True) -> list[tuple[str, Any]]:
    """Return (path, packed tree) of the files of one folder below ``rules/``: see ``nodes.packed``.

    Parsing YAML costs many times what reading it back does. ``use_cache`` is false when what the cache held was damaged.
    """
    files = _texts(folder)
    digest = hashlib.sha256("\0".join(text for _, text in files).encode()).hexdigest()
    entry = cache.name(f"knowledge_{folder}", digest)
    known = cache.read_table(entry) if use_cache else None
    if known is not None and isinstance(known.get("files"), list) and len(known["files"]) == len(files):
        return [(path, tree) for tree, (path, _) in zip(known["files"], files, strict=True)]
    found = [(path, nodes.packed(nodes.parse(text, path))) for path, text in files]
    cache.write_table(entry, {"files": [tree for _, tree in found]})
    return found


def roots(folder: str) -> list[Node]:
    """Return the parsed files of one folder below ``rules/``."""
    with contextlib.suppress(ValueError):
        return [nodes.unpacked(tree, path) for path, tree in packed(folder)]
    return [nodes.unpacked(tree, path) for path, tree in packed(folder, use_cache=False)]
