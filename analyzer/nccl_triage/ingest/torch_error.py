"""torchelastic's error.json as the traceback it holds, so that it is read like any other log.

Source: torch/distributed/elastic/multiprocessing/errors/error_handler.py (``record_exception``) and api.py:
the file is ``{"message": {"message": "RuntimeError: ..", "extraInfo": {"py_callstack": "Traceback ..",
"timestamp": "1732357351"}}}``; for signals, and in old releases, ``message`` is a plain string.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

#: The file holds one traceback; something larger is another file of that name.
MAX_SIZE = 4 << 20


def is_error_file(name: str) -> bool:
    """Tell by its name whether a file is one of torchelastic's error files."""
    return name == "error.json"


def _text(document: object) -> str | None:
    if not isinstance(document, Mapping):
        return None
    message = document.get("message")
    if isinstance(message, str):
        return message
    if not isinstance(message, Mapping):
        return None
    extra = message.get("extraInfo")
    for candidate in (
        extra.get("py_callstack") if isinstance(extra, Mapping) else None,
        message.get("message"),
    ):
        if isinstance(candidate, str) and candidate.strip():
            return candidate
    return None


def render(data: bytes) -> bytes:
    """Return the traceback (or, without one, the message) of an error file as lines.

    What is no such document, or is larger than ``MAX_SIZE``, is returned unchanged: it is read as text then.
    """
    if len(data) > MAX_SIZE:
        return data
    try:
        # json, not orjson: Python writes lone surrogates for undecodable bytes, which orjson refuses.
        text = _text(json.loads(data))
    except (ValueError, RecursionError):
        return data
    if text is None:
        return data
    return text.rstrip("\n").encode("utf-8", "replace") + b"\n"
