"""One report document, every format: ``render(document, "html")`` and its siblings.

The document passes through JSON before anything is rendered, so that a report made from ``report.json``
cannot differ from the report of the run that wrote it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nccl_triage.render.view import View

if TYPE_CHECKING:
    from nccl_triage.render.words import Document

__all__ = ["FORMATS", "Format", "View", "render"]


class Format(NamedTuple):
    """One output format: ``module.produce(document, view) -> str`` makes it; files of these suffixes hold it."""

    module: str
    suffixes: tuple[str, ...]


#: What ``--format`` accepts. A further format is one module of this package and one row.
FORMATS: dict[str, Format] = {
    "text": Format("terminal", (".txt",)),
    "json": Format("json_output", (".json",)),
    "ndjson": Format("ndjson", (".ndjson", ".jsonl")),
    "markdown": Format("markdown", (".md", ".markdown")),
    "html": Format("html", (".html", ".htm")),
    "sarif": Format("sarif", (".sarif", ".sarif.json")),
    "junit": Format("junit", (".xml",)),
    "github": Format("github", ()),
}


def render(
    document: Document,
    format: str,
    *,
    lang: Literal["en", "zh"] = "en",
    color: bool = False,
    width: int | None = None,
    verbose: int = 0,
) -> bytes:
    """Return the document in one of ``FORMATS``; ``color`` and ``width`` concern text only.

    Secrets are masked, whoever wrote the document.

    Raises ValueError for a format that does not exist.
    """
    import orjson

    from nccl_triage.redaction.secrets import mask_secrets
    from nccl_triage.render import json_output

    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}: one of {', '.join(FORMATS)}")
    same = orjson.loads(json_output.render(mask_secrets(dict(document))))
    maker: Any = importlib.import_module(f"nccl_triage.render.{FORMATS[format].module}")
    text: str = maker.produce(same, View(lang, color, width, verbose))
    return text.encode("utf-8", "replace")
