"""torchelastic's error.json as the traceback it holds, so that it is read like any other log.

Source: torch/distributed/elastic/multiprocessing/errors/error_handler.py (``record_exception``) and api.py:
the file is ``{"message": {"message": "RuntimeError: ..", "extraInfo": {"py_callstack": "Traceback ..",
"timestamp": "1732357351"}}}``; for signals, and in old releases, ``message`` is a plain string.
"""

from __future__ import annotations

from collections.abc import Mapping

from nccl_triage.observations.store import SourceInfo
from nccl_triage.renderings import documents
from nccl_triage.renderings.form import Rendering

#: The file holds one traceback; something larger is another file of that name.
MAX_SIZE = 4 << 20


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


def _recognises(name: str, sample: bytes) -> bool:
    return name == "error.json"


def render(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the traceback (or, without one, the message) of an error file as lines; None for another document."""
    text = _text(documents.load(data))
    return None if text is None else text.rstrip("\n").encode("utf-8", "replace") + b"\n"


RENDERING = Rendering("torch-error", MAX_SIZE, _recognises, render)
