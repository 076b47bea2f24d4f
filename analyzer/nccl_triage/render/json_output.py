"""The report document as JSON, indented or as one line: what scripts read, and what ``render`` turns into every format."""

from __future__ import annotations

from typing import Any

import orjson

from nccl_triage.lazy_regex import lazily
from nccl_triage.render.words import Document, RenderOptions

_LARGEST = 2**53
#: What a terminal obeys or shows in another order, besides what JSON escapes anyway: here it only stands in strings.
#: So does a runner of continuous integration with ``##[``.
_ACTING = lazily(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]|#(?=#\w*\[)")


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


def dump(document: Document, option: int = 0) -> bytes:
    """Return the document as JSON with sorted keys and a newline at the end; ``option`` is orjson's."""
    option |= orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    try:
        data = orjson.dumps(document, option=option)
    except TypeError:
        data = orjson.dumps(_clean(dict(document)), option=option)
    return inert(data)


def inert(data: bytes) -> bytes:
    """Return JSON in UTF-8 with what a terminal obeys spelled out: JSON itself allows much of it within strings."""
    return _ACTING.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), data)


def render(document: Document) -> bytes:
    """Return the document as indented JSON with sorted keys."""
    return dump(document, orjson.OPT_INDENT_2)


def produce(document: Document, view: RenderOptions) -> str:
    """Return the document as indented JSON; the view changes nothing."""
    return render(document).decode()


def produce_line(document: Document, view: RenderOptions) -> str:
    """Return the document as one line with sorted keys; the view changes nothing."""
    return dump(document).decode()
