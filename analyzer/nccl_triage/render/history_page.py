"""The history as one HTML page: it works offline, without scripts, on paper and in both languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage._version import __version__
from nccl_triage.render import history_chart
from nccl_triage.render.html import environment
from nccl_triage.render.words import Lang

#: Incidents, and hosts, that the page lists; all are in the JSON.
MOST = 400


def render(data: Mapping[str, Any], lang: Lang) -> str:
    """Return the page; ``lang`` is the language shown first."""
    incidents = data["incidents"]
    counts = {verdict: sum(one["verdict"] == verdict for one in incidents) for verdict in history_chart.VERDICTS}
    page = environment().get_template("history.html.jinja")
    shown = page.render(
        data=data,
        lang=lang,
        counts=counts,
        chart=history_chart.draw(incidents),
        most=MOST,
        version=__version__,
    )
    return shown + "\n"
