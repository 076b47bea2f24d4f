"""One report document, every format: ``render(document, "html")`` and its siblings.

The document passes through JSON before anything is rendered, so that a report made from ``report.json``
cannot differ from the report of the run that wrote it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nccl_triage.render.words import RenderOptions

if TYPE_CHECKING:
    from nccl_triage.render.text_page import Link
    from nccl_triage.render.words import Document

__all__ = ["FORMATS", "OutputFormat", "RenderOptions", "render"]


class OutputFormat(NamedTuple):
    """One output format: ``module.function(document, options) -> str`` makes it; files of these suffixes hold it."""

    module: str
    suffixes: tuple[str, ...]
    #: Whether texts are shown as they are; JSON formats escape control characters and lose nothing.
    shown: bool = True
    function: str = "produce"
    #: Whether names are always replaced by pseudonyms, since what it makes leaves the house.
    redacted: bool = False


#: The formats of ``--format``. A new format is one module of this package and one row.
FORMATS: dict[str, OutputFormat] = {
    "text": OutputFormat("terminal", (".txt",)),
    "json": OutputFormat("json_output", (".json",), False),
    "ndjson": OutputFormat("json_output", (".ndjson", ".jsonl"), False, "produce_line"),
    "csv": OutputFormat("job_table", (".csv",), function="produce_csv"),
    "markdown": OutputFormat("markdown", (".md", ".markdown")),
    "html": OutputFormat("html", (".html", ".htm")),
    "sarif": OutputFormat("sarif", (".sarif", ".sarif.json")),
    "junit": OutputFormat("junit", (".xml",)),
    "github": OutputFormat("github", ()),
    "brief": OutputFormat("brief", ()),
    "prompt": OutputFormat("prompt", (), redacted=True),
}


def render(
    document: Document,
    format: str,
    *,
    lang: Literal["en", "zh"] = "en",
    color: bool = False,
    width: int | None = None,
    verbose: int = 0,
    link: Link | None = None,
) -> bytes:
    """Return the document in one of ``FORMATS``; ``color``, ``width`` and ``link`` concern text only.

    Secrets are masked, whoever wrote the document.

    Raises ValueError for a format that does not exist.
    """
    import orjson

    from nccl_triage.redaction.secrets import mask_secrets
    from nccl_triage.render import json_output

    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}: one of {', '.join(FORMATS)}")
    same = orjson.loads(json_output.render(mask_secrets(dict(document))))
    if FORMATS[format].redacted:
        from nccl_triage.redaction import redact

        same = redact(same)
    if FORMATS[format].shown:
        same = shown(same)
    module = importlib.import_module(f"nccl_triage.render.{FORMATS[format].module}")
    text: str = getattr(module, FORMATS[format].function)(same, RenderOptions(lang, color, width, verbose, link))
    return text.encode("utf-8", "replace")


def shown(value: Any) -> Any:
    """Return a document without control sequences in any of its texts.

    Each format escapes texts in its own way; this is a second line of defence.
    """
    from nccl_triage.render.words import visible_lines

    if isinstance(value, dict):
        return {visible_lines(key): shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    return visible_lines(value) if isinstance(value, str) and not value.isprintable() else value
