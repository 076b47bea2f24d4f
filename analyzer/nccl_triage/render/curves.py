"""Curves of the numbers that the program printed (loss, memory, step time): one small panel a metric, one line a rank.

Only a curve that shows something is drawn: a spike, a slow-down, numbers that are none; over steps or time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from nccl_triage.render.chart_symbols import WIDTH, pixel, shape
from nccl_triage.render.time_axis import seconds
from nccl_triage.render.vocabulary import Pair
from nccl_triage.render.words import Document, place, visible, word

#: Panels drawn at most, and lines in one panel.
MAX_PANELS, MAX_LINES = 2, 8
#: What a horizontal axis may show.
AXES = ("step", "time")
#: The longest time axis whose ends are told as times of the day, in seconds.
_YEAR = 366 * 86400.0
#: The mark that says nothing by itself: the last step before the fault.
_LAST_GOOD = "last_good"
#: Styles of lines that the style sheet knows.
STYLES = 4
#: Ratio of the largest to the smallest value from which a panel has a logarithmic scale.
_LOG_FROM = 1000.0
_GAP, _TALL, _LEFT, _TOP, _BOTTOM, _RIGHT = 32, 150, 64, 30, 24, 14
_HALF = (WIDTH - _GAP) // 2


@dataclass
class Panel:
    """One metric: its place, axes in words and paths in pixels."""

    x: int
    y: int
    width: int
    height: int
    title: Pair
    unit: str
    scale: str
    lines: list[tuple[str, str, int]] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)
    marks: list[tuple[int, int, str]] = field(default_factory=list)
    places: list[tuple[int, str, Pair]] = field(default_factory=list)
    axis: list[tuple[int, int, str, str]] = field(default_factory=list)


@dataclass
class Curves:
    """All panels and the rows of their table."""

    height: int = 0
    panels: list[Panel] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    legend: list[tuple[int, str]] = field(default_factory=list)
    left_out: int = 0

    @property
    def marked(self) -> bool:
        """Whether places are marked on a curve."""
        return any(panel.places for panel in self.panels)


def number(value: object) -> str:
    """Return a number with at most four significant digits, short enough for an axis."""
    if not isinstance(value, (int, float)):
        return ""
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value)}"
    return f"{value:.4g}" if abs(value) >= 0.001 else f"{value:.2g}"


def draw(document: Document) -> Curves | None:
    """Return the panels, or None where the log carries no series."""
    metrics: dict[str, list[Mapping[str, Any]]] = {}
    for series in document.get("series") or []:
        if len(_points(series)) > 1 and series.get("x") in AXES:
            metrics.setdefault(str(series.get("metric")), []).append(series)
    metrics = {name: found for name, found in metrics.items() if any(map(_tells, found))}
    if not metrics:
        return None
    drawn = Curves(left_out=max(0, len(metrics) - MAX_PANELS))
    ranks = sorted({s["rank"] for found in metrics.values() for s in found[:MAX_LINES] if s.get("rank") is not None})
    styles = {rank: i % STYLES for i, rank in enumerate(ranks)}
    drawn.legend = [(style, f"rank {rank}") for rank, style in styles.items()] if 1 < len(ranks) <= MAX_LINES else []
    wide = WIDTH if len(metrics) == 1 else _HALF
    for i, found in enumerate(list(metrics.values())[:MAX_PANELS]):
        drawn.panels.append(_panel(found[:MAX_LINES], styles, i * (wide + _GAP), wide))
    drawn.height = _TALL + 6
    drawn.rows = [_row(series) for found in metrics.values() for series in found]
    return drawn


def _tells(series: Mapping[str, Any]) -> bool:
    """Tell whether a curve carries a mark that says more than where the failure came."""
    kinds = {mark.get("kind") for mark in series.get("marks") or []}
    return bool(kinds - {_LAST_GOOD}) or bool(series.get("not_finite"))


def _points(series: Mapping[str, Any]) -> list[tuple[float, float]]:
    pairs = series.get("points") or []
    return [(float(x), float(y)) for x, y in pairs if isinstance(x, (int, float)) and isinstance(y, (int, float))]


def _row(series: Mapping[str, Any]) -> dict[str, Any]:
    lines = series.get("lines") or [None, None]
    source = {"path": series.get("source"), "line": lines[0]}
    return {
        "title": Pair(str(series.get("title")), str(series.get("title_zh") or series.get("title"))),
        "rank": series.get("rank"),
        "unit": series.get("unit") or "",
        "count": series.get("count"),
        "first": number(_points(series)[0][1]) if _points(series) else "",
        "min": number(series.get("min")),
        "max": number(series.get("max")),
        "last": number(series.get("last")),
        "bad": ", ".join(f"{number(x)}: {visible(text, 20)}" for x, text in (series.get("not_finite") or [])[:4]),
        "marks": [_named(mark) for mark in series.get("marks") or []],
        "point": source,
        "where": visible(place(source)),
    }


def _named(mark: Mapping[str, Any]) -> Pair:
    """Return a mark in words: what it is, and where on the axis."""
    kind, at = f"mark_{mark.get('kind')}", number(mark.get("x"))
    return Pair(*(f"{word(kind, lang)}: {at}" for lang in ("en", "zh")))


class _Scale:
    """Turns a value into a pixel, linearly or by its logarithm."""

    def __init__(self, values: Sequence[float], start: int, length: int, log: bool) -> None:
        self.log, self.start, self.length = log, start, length
        self.low, self.high = self._of(min(values)), self._of(max(values))

    def _of(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def __call__(self, value: float) -> int:
        span = self.high - self.low
        share = (self._of(value) - self.low) / span if span else 0.5
        return pixel(self.start + share * self.length)


def _panel(found: Sequence[Mapping[str, Any]], styles: Mapping[Any, int], x: int, wide: int) -> Panel:
    first, y = found[0], 2
    panel = Panel(
        x, y, wide, _TALL,
        Pair(str(first.get("title")), str(first.get("title_zh") or first.get("title"))),
        visible(first.get("unit") or "", 20), str(first.get("x")),
    )  # fmt: skip
    all_points = [_points(series) for series in found]
    strange = [float(at) for s in found for at, _ in s.get("not_finite") or [] if isinstance(at, (int, float))]
    ys = [value for points in all_points for _, value in points] or [0.0]
    xs = [at for points in all_points for at, _ in points] + strange
    log = min(ys) > 0 and max(ys) / min(ys) > _LOG_FROM
    across = _Scale(xs or [0.0], x + _LEFT, wide - _LEFT - _RIGHT, log=False)
    up = _Scale(ys, y + _TALL - _BOTTOM, -(_TALL - _TOP - _BOTTOM), log)
    for series, points in zip(found, all_points, strict=True):
        rank = series.get("rank")
        tip = "" if rank is None else f"rank {rank}"
        if points:
            path = "M" + "L".join(f"{across(at)} {up(value)}" for at, value in points)
            panel.lines.append((path, tip, styles.get(rank, 0)))
            at, value = points[-1]
            panel.marks.append((across(at), up(value), number(value)))
        for at, text in (series.get("not_finite") or [])[:20]:
            if isinstance(at, (int, float)):
                panel.bad.append(
                    (shape("cross", across(float(at)), y + _TOP - 2, 5), f"{number(at)}: {visible(text, 20)}")
                )
    panel.places = _places(found, across)
    low, high = y + _TALL - _BOTTOM, y + _TOP
    panel.axis = [(x + _LEFT - 6, high + 4, number(max(ys)), "end"), (x + _LEFT - 6, low + 4, number(min(ys)), "end")]
    if xs:
        begin, end = _ends(first, min(xs), max(xs))
        bottom = y + _TALL - 6
        panel.axis += [(x + _LEFT, bottom, begin, "start"), (x + wide - _RIGHT, bottom, end, "end")]
    return panel


def _ends(series: Mapping[str, Any], low: float, high: float) -> tuple[str, str]:
    """Return the labels of both ends of the horizontal axis: steps, or times of the day."""
    start = seconds(series.get("x_start")) if series.get("x") == "time" else None
    if start is None or not 0 <= low <= high < _YEAR:
        return number(low), number(high)
    clocks = [datetime.fromtimestamp(start + at, tz=timezone.utc).strftime("%H:%M:%S") for at in (low, high)]
    return clocks[0], clocks[1]


def _places(found: Sequence[Mapping[str, Any]], across: _Scale) -> list[tuple[int, str, Pair]]:
    """Return the upright lines of a panel, each place once: pixel, style and words."""
    marks = {(m.get("kind"), m.get("x")): m for series in found for m in series.get("marks") or []}
    return [
        (across(float(mark["x"])), "good" if kind == "last_good" else "fault", _named(mark))
        for (kind, _), mark in marks.items()
        if isinstance(mark.get("x"), (int, float))
    ]
