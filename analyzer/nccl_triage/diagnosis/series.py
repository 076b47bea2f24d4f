"""The curves of a report: loss, memory, step time and throughput as the programs printed them.

Every curve is an honest sample: at most ``MAX_POINTS`` of the printed numbers, the first, last, lowest and highest
among those that were read, none of them averaged or smoothed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nccl_triage.diagnosis.last_step import last_good_step
from nccl_triage.diagnosis.model import Findings
from nccl_triage.diagnosis.series_groups import Group, collect
from nccl_triage.diagnosis.series_marks import Marks
from nccl_triage.engine.series import Metric
from nccl_triage.observations.curves import CurveRow
from nccl_triage.parsers import times

#: Curves in a document, and curves of one metric.
MAX_SERIES, MAX_RANKS = 12, 4
#: Below this many numbers there is nothing to draw.
MIN_POINTS = 2
#: A step may fall back by this share of the range (ranks that interleave); more means a restart or a new epoch.
_FALL_BACK = 0.1


def _in_order(groups: Iterable[Group], suspects: set[int]) -> list[Group]:
    """Return the groups by how much they tell: numbers that are not finite, suspects, many numbers, high numbers."""

    def key(group: Group) -> tuple[object, ...]:
        return (
            not group.strange,
            group.rank not in suspects,
            -group.count,
            -max(group.values.values(), default=0.0),
            -1 if group.rank is None else group.rank,
            group.source or "",
        )

    return sorted((group for group in groups if group.count >= MIN_POINTS), key=key)


def _steadily(values: list[float]) -> bool:
    """Tell whether values never fall back far: in the order of the lines they can be an axis."""
    if not values or min(values) < 0:
        return False
    top, allowed = values[0], max(2.0, _FALL_BACK * (max(values) - min(values)))
    for value in values:
        top = max(top, value)
        if top - value > allowed:
            return False
    return True


def _axis(rows: list[CurveRow], one_source: bool) -> str | None:
    """Return what the numbers are drawn against, or None when nothing orders them."""
    steps, epochs, moments = [r.step for r in rows], [r.epoch for r in rows], [r.time for r in rows]
    if not one_source:
        return "step" if min(steps) >= 0 else "time" if min(moments) >= 0 else None
    if _steadily(steps) and len(set(steps)) > 1:
        return "step"
    if min(epochs) >= 0 and epochs == sorted(epochs) and 2 * len(set(epochs)) > len(epochs):
        return "epoch"
    if min(moments) >= 0 and moments == sorted(moments) and len(set(moments)) > 1:
        return "time"
    return "line"


def _number(value: float) -> float | int:
    """Return a number with the digits that a chart can show, whole numbers as such."""
    return int(value) if abs(value) < 1e15 and value == int(value) else float(f"{value:.7g}")


@dataclass(slots=True)
class _Panel:
    """One metric: its groups by how much they tell, and the axis that all of them are drawn against."""

    metric: Metric
    groups: list[Group]
    axis: str
    start: float

    def entry(self, group: Group, marks: Marks) -> dict[str, Any]:
        """Return one curve as data."""
        rows = group.chosen()
        placed = sorted((self._x(row), row) for row in rows)
        first, last, low, high = (_number(group.values[r]) for r in group.ends()) if group.values else (None,) * 4
        entry: dict[str, Any] = {
            "metric": self.metric.id,
            "title": self.metric.title["en"],
            "title_zh": self.metric.title["zh"],
            "unit": None if self.metric.unit == "none" else self.metric.unit,
            "rank": group.rank,
            "source": group.source,
            "x": self.axis,
            "x_start": times.show(self.start) if self.axis == "time" else None,
            "points": [[x, None if row in group.strange else _number(group.values[row])] for x, row in placed],
            "not_finite": [[x, group.strange[row]] for x, row in placed if row in group.strange],
            "not_finite_count": group.strange_count,
            "count": _rough(group.printed) if group.sampled else len(rows),
            "sampled": group.sampled,
            "first": first,
            "min": low,
            "max": high,
            "last": last,
            "lines": [rows[0].line, rows[-1].line] if group.source is not None else None,
        }
        return {**entry, "marks": marks.of(entry, self.start)}

    def _x(self, row: CurveRow) -> float | int:
        if self.axis == "time":
            return _number(row.time - self.start)
        return _number({"step": row.step, "epoch": row.epoch, "line": float(row.line)}[self.axis])


def _rough(number: float) -> int:
    """Return an estimate with two digits."""
    return int(float(f"{number:.2g}"))


def _repeats(first: Group, other: Group) -> bool:
    """Tell whether a further rank shows nothing of its own: constant numbers, or those that the first one has."""
    if other.strange:
        return False
    if len(set(other.values.values())) == 1:
        return True
    known = {row.step: value for row, value in first.values.items() if row.step >= 0}
    common = [(value, known[row.step]) for row, value in other.values.items() if row.step in known]
    return len(common) > 1 and all(one == two for one, two in common)


def _panel(metric: Metric, groups: list[Group], suspects: set[int]) -> _Panel | None:
    """Return what can be drawn of one metric: the groups that share the axis of the first one."""
    chosen: list[Group] = []
    axis: str | None = None
    for group in _in_order(groups, suspects):
        own = _axis(group.chosen(), group.source is not None)
        if own is None or (axis is not None and own != axis):
            continue
        if chosen and ((axis == "line" and group.source != chosen[0].source) or _repeats(chosen[0], group)):
            continue  # the lines of two files do not compare
        axis = own
        chosen.append(group)
    if axis is None:
        return None
    start = min(row.time for group in chosen for row in (*group.values, *group.strange))
    return _Panel(metric, chosen[:MAX_RANKS], axis, start)


def describe(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return the curves of the document: first one of each metric, then further ranks while there is room."""
    case = diagnosis.case
    suspects = {c.rank for candidate in diagnosis.candidates[:1] for c in candidate.culprits if c.rank is not None}
    collected = collect(case)
    found = [
        _panel(metric, collected[metric.id], suspects)
        for metric in case.rules.series.metrics.values()
        if metric.id in collected
    ]
    panels = [panel for panel in found if panel is not None]
    turns = [(turn, index) for turn in range(MAX_RANKS) for index, p in enumerate(panels) if turn < len(p.groups)]
    chosen = sorted((index, turn) for turn, index in turns[:MAX_SERIES])
    marks = Marks(case, last_good_step(diagnosis) if chosen else None)
    return [panels[index].entry(panels[index].groups[turn], marks) for index, turn in chosen]
