"""Placeholders in the texts of rules: ``{fact:NAME}``, ``{f:FIELD}``, ``{rank}``, ``{host}``, ``{count}``."""

from __future__ import annotations

from nccl_triage.lazy_regex import lazily

PLACEHOLDER = lazily(r"\{(?P<kind>fact:|f:|version:|env:)?(?P<name>[A-Za-z_][\w.-]*)\}")


def strip(text: str) -> str:
    """Return the text with its placeholders shown as names, for catalogues that have no log."""
    return PLACEHOLDER.sub(lambda match: f"<{match['name']}>", text)
