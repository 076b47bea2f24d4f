"""Show a rule as it stands in its file."""

from __future__ import annotations

from pathlib import Path

from nccl_triage import resources


def _text(path: str) -> str:
    if path.startswith("rules/"):
        entry = resources.rules_dir()
        for part in path.split("/")[1:]:
            entry = entry / part
        return entry.read_text(encoding="utf-8")
    return Path(path).read_text(encoding="utf-8")


def definition(where: str, rule: str) -> str:
    """Return the lines that define a rule, given its ``path:line``: the whole file for a cause, one entry otherwise."""
    path, _, number = where.rpartition(":")
    lines = _text(path).splitlines()
    if path.endswith(f"{rule}.yaml"):
        return "\n".join(lines)
    first = int(number) - 1
    last = first + 1
    while last < len(lines) and not lines[last].lstrip().startswith("- id:"):
        last += 1
    return "\n".join(lines[first:last]).rstrip()
