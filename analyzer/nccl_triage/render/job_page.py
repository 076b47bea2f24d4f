"""The table of several jobs as one HTML page that leads to the report of each: it works offline, without scripts, on paper."""

from __future__ import annotations

from nccl_triage.render.html import environment
from nccl_triage.render.words import Document, Lang


def render(table: Document, lang: Lang) -> str:
    """Return the page; ``lang`` is the language shown first."""
    return environment().get_template("jobs.html.jinja").render(table=table, lang=lang) + "\n"
