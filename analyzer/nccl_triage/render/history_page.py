"""The history as one HTML page with a chart of incidents over time: it works offline, without scripts, on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nccl_triage._version import __version__
from nccl_triage.parsers import times
from nccl_triage.render.chart_symbols import WIDTH
from nccl_triage.render.html import environment
from nccl_triage.render.time_axis import seconds
from nccl_triage.render.words import Lang

#: The rows, from top to bottom, and the most bars of each.
VERDICTS, MAX_BARS = ("diagnosed", "unknown", "healthy"), 60
_GUTTER, _RIGHT, _TOP, _ROW, _TALLEST, _DAY = 150, 16, 30, 62, 40, 86400.0
_TICKS = 6


@dataclass(frozen=True)
class HistoryBar:
    """How many jobs had a verdict in one span of time."""

    verdict: str
    x: float
    y: float
    width: float
    height: float
    count: int


@dataclass(frozen=True)
class HistoryChart:
    """The chart's parts; ``days`` is the span of a bar, ``rows`` are the base lines with their verdicts."""

    height: int
    days: int
    rows: list[tuple[int, str]]
    bars: list[HistoryBar]
    ticks: list[tuple[int, str]]
    table: list[tuple[str, dict[str, int]]]


def history_chart(incidents: Sequence[Mapping[str, Any]]) -> HistoryChart | None:
    """Return the chart; None where there is nothing to draw."""
    placed = [(when, str(one["verdict"])) for one in incidents if (when := seconds(one["time"])) is not None]
    if not placed:
        return None
    first = min(when for when, _ in placed) // _DAY * _DAY
    whole = int((max(when for when, _ in placed) - first) // _DAY) + 1
    days = -(-whole // MAX_BARS)
    number = -(-whole // days)
    counts = Counter((int((when - first) // (days * _DAY)), verdict) for when, verdict in placed)
    most = max(counts.values())
    step = (WIDTH - _GUTTER - _RIGHT) / number
    rows = [(_TOP + _ROW * (at + 1) - 10, verdict) for at, verdict in enumerate(VERDICTS)]
    bars = [
        HistoryBar(
            verdict,
            round(_GUTTER + at * step, 1),
            round(base - tall, 1),
            round(max(min(step, 40) - 2, 2), 1),
            tall,
            count,
        )
        for base, verdict in rows
        for (at, of), count in sorted(counts.items())
        if of == verdict
        for tall in (round(max(3.0, _TALLEST * count / most), 1),)
    ]
    every = -(-number // _TICKS)
    starts = [(at, times.show(first + at * days * _DAY)[:10]) for at in range(number)]
    table = [
        (start, {verdict: counts[at, verdict] for verdict in VERDICTS})
        for at, start in starts
        if any(counts[at, verdict] for verdict in VERDICTS)
    ]
    ticks = [(int(_GUTTER + at * step), start) for at, start in starts if at % every == 0]
    return HistoryChart(_TOP + _ROW * len(VERDICTS), days, rows, bars, ticks, table)


#: Incidents, and hosts, that the page lists; all are in the JSON.
MOST = 400


def render(data: Mapping[str, Any], lang: Lang) -> str:
    """Return the page; ``lang`` is the language shown first."""
    incidents = data["incidents"]
    counts = {verdict: sum(one["verdict"] == verdict for one in incidents) for verdict in VERDICTS}
    page = environment().get_template("history.html.jinja")
    shown = page.render(
        data=data,
        lang=lang,
        counts=counts,
        chart=history_chart(incidents),
        most=MOST,
        version=__version__,
    )
    return shown + "\n"
