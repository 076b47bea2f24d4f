"""JSON documents of other programs: read without trust in their form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def load(data: bytes) -> Any:
    """Return what a document holds, None for what is none.

    json, not orjson: Python writes lone surrogates for undecodable bytes, which orjson refuses.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def rows(value: object) -> list[Mapping[str, Any]]:
    """Return the tables of a list; none of what is no list."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []
