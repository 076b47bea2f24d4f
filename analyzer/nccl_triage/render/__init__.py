"""One report document, every format: ``render(document, "html")`` and its siblings.

The document passes through JSON before anything is rendered, so that a report made from ``report.json``
cannot differ from the report of the run that wrote it.
"""

from __future__ import annotations

from nccl_triage.render.words import Document, Lang

#: The names that ``--format`` accepts.
FORMATS = ("text", "json", "ndjson", "markdown", "html")

__all__ = ["FORMATS", "Document", "Lang", "render"]


def render(
    document: Document,
    format: str,
    *,
    lang: Lang = "en",
    color: bool = False,
    width: int | None = None,
    verbose: int = 0,
) -> bytes:
    """Return the document in one of ``FORMATS``; ``color``, ``width`` and ``verbose`` concern text only."""
    import orjson

    from nccl_triage.render import json_output

    if format == "ndjson":
        return json_output.render_ndjson(document)
    data = json_output.render(document)
    if format == "json":
        return data
    same = orjson.loads(data)
    if format == "text":
        from nccl_triage.render import terminal

        text = terminal.render(same, color=color, width=width, lang=lang, verbose=verbose)
    elif format == "markdown":
        from nccl_triage.render import markdown

        text = markdown.render(same, lang)
    elif format == "html":
        from nccl_triage.render import html

        text = html.render(same, lang)
    else:
        raise ValueError(f"unknown format {format!r}: one of {', '.join(FORMATS)}")
    return text.encode("utf-8", "replace")
