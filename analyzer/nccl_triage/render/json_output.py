"""The report document as JSON: what scripts read, and what ``render`` turns into every other format."""

from __future__ import annotations

from typing import Any

import orjson

from nccl_triage.render.words import Document

_LARGEST = 2**53


def _clean(value: Any) -> Any:
    """Return the value without what JSON cannot carry: undecodable file names, integers beyond 64 bits."""
    if isinstance(value, dict):
        return {_clean(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
        return [_clean(item) for item in items]
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape" if _undecoded(value) else "replace").decode("utf-8", "replace")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST:
        return float(value) if abs(value) < 10**300 else None
    return value


def _undecoded(text: str) -> bool:
    """Tell whether every lone surrogate comes from a file name's undecodable byte."""
    return all(not 0xD800 <= ord(c) <= 0xDFFF or 0xDC80 <= ord(c) <= 0xDCFF for c in text)


def _dump(document: Document, option: int) -> bytes:
    option |= orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    try:
        return orjson.dumps(document, option=option)
    except TypeError:
        return orjson.dumps(_clean(dict(document)), option=option)


def render(document: Document) -> bytes:
    """Return the document as indented JSON with sorted keys."""
    return _dump(document, orjson.OPT_INDENT_2)


def render_ndjson(document: Document) -> bytes:
    """Return the document as one line of JSON, so that the reports of many logs can follow one another."""
    return _dump(document, 0)
