"""Where the marks of the bandwidth chart go: one row a measurement, the expected band behind it, GB/s to the right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nccl_triage.render.experiments import changed, figure, message
from nccl_triage.render.shapes import WIDTH, pixel, shape
from nccl_triage.render.words import Lang, Pair, cut, visible

#: State of a measurement -> shape and tone; a state of a newer document counts as one without expectation.
STATES = {
    "in-band": ("dot", "good"),
    "below": ("triangle", "bad"),
    "above": ("diamond", "good"),
    "no-expectation": ("ring", "quiet"),
    "message-too-small": ("dash", "quiet"),
}
#: The most rows drawn.
MAX_ROWS = 40
_GUTTER, _RIGHT, _ROW, _TOP, _LABEL = 330, 84, 26, 30, 48


@dataclass(frozen=True)
class Bar:
    """One measurement: the mark at its bandwidth, and the band (left, width) where one is known."""

    y: int
    label: Pair
    x: int
    path: str
    tone: str
    value: str
    state: str
    band: tuple[int, int] | None


@dataclass(frozen=True)
class Chart:
    """The chart's parts; ``states`` are those that occur, for the legend."""

    height: int
    bars: list[Bar]
    ticks: list[tuple[int, str]]
    states: list[str]


def measurements(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for every bandwidth that was measured: a run's own, then those of its further collectives."""
    rows = []
    for run in runs:
        for part in (run, *(run.get("parts") or [])):
            rate = part.get("bandwidth") or {}
            if isinstance(rate.get("busbw"), (int, float)):
                expected = part.get("expected") or {}
                state = str(expected.get("state"))
                state = state if state in STATES else "no-expectation"
                rows.append({"run": run, "part": part, "rate": rate, "expected": expected, "state": state})
    return rows


#: Rates, in GB/s, between which the axis has round values: a document may hold any number.
_LEAST, _MOST = 1e-6, 1e15


def _ticks(most: float) -> list[float]:
    """Return about five round values from 0 to the first one that is not below ``most``."""
    raw = min(max(most, _LEAST), _MOST) / 5 if most else 0.2
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [round(step * index, 10) for index in range(max(1, math.ceil(round(most / step, 6))) + 1)]


def _label(row: Mapping[str, Any], lang: Lang) -> str:
    own = row["part"] is row["run"]
    what = changed(row["run"], lang) if own else message(row["part"])
    return cut(visible(f"{row['run'].get('run') or '?'}: {what}", 200), _LABEL)


def chart(rows: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Return the chart of the first rows of ``measurements``, or None without any."""
    rows = rows[:MAX_ROWS]
    if not rows:
        return None
    values = [float(row["rate"]["busbw"]) for row in rows]
    ticks = _ticks(max([*values, *(float(row["expected"].get("high") or 0) for row in rows)]))
    scale = (WIDTH - _GUTTER - _RIGHT) / ticks[-1]

    def x(value: float) -> int:
        return pixel(_GUTTER + value * scale)

    bars = []
    for index, (row, value) in enumerate(zip(rows, values, strict=True)):
        kind, tone = STATES[row["state"]]
        low, high = row["expected"].get("low"), row["expected"].get("high")
        known = isinstance(low, (int, float)) and isinstance(high, (int, float))
        y = _TOP + _ROW * index + _ROW // 2
        bars.append(
            Bar(
                y=y,
                label=Pair(_label(row, "en"), _label(row, "zh")),
                x=x(value),
                path=shape(kind, x(value), y, 6),
                tone=tone,
                value=figure(value),
                state=row["state"],
                band=(x(low), max(x(high) - x(low), 2)) if known else None,
            )
        )
    present = {row["state"] for row in rows}
    states = [state for state in STATES if state in present]
    return Chart(
        _TOP + _ROW * len(rows) + 8, bars, [(x(v), f"{v:,.6f}".rstrip("0").rstrip(".")) for v in ticks], states
    )
