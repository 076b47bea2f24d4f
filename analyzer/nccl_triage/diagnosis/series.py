"""The curves of a report: loss, memory, step time and throughput as the programs printed them, and the last good step.

Every curve is an honest sample: at most ``MAX_POINTS`` of the printed numbers, the first, last, lowest and highest
among them, none of them averaged or smoothed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.curves import INFINITE, NAN, NOT_KNOWN, Curve, Point, Process, Summary
from nccl_triage.diagnosis import incident
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts.progress import progress_of
from nccl_triage.diagnosis.model import Findings
from nccl_triage.engine.series import Metric
from nccl_triage.events import Context, Event
from nccl_triage.parsers import times

#: Curves in a document, curves of one metric, and points of one curve.
MAX_SERIES, MAX_RANKS, MAX_POINTS = 12, 4, 240
#: Below this many numbers there is nothing to draw.
MIN_POINTS = 2
#: A step may fall back by this share of the range (ranks that interleave); more means a restart or a new epoch.
_FALL_BACK = 0.1
#: Signatures of progress bars: they count anything, not only training steps.
_BARS = ("huggingface.tqdm", "training.keras_bar", "training.tqdm_no_total")


@dataclass(slots=True)
class _Group:
    """The numbers of one metric by one rank in one source; rank None and source None for all together."""

    rank: int | None
    source: str | None
    summary: Summary = field(default_factory=Summary)
    points: list[Point] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.summary.count + self.summary.strange_count

    def chosen(self) -> list[Point]:
        """Return the points to draw, in order: the extremes and as many of the sample as there is room for."""
        ends = self.summary.ends()
        room = MAX_POINTS - len(ends) - len(self.summary.strange)
        return sorted({*ends, *self.points[:room]})


def _rank(case: Case, process: Process) -> int | None:
    context = Context(
        rank=_known(process.rank),
        local_rank=_known(process.local_rank),
        group_rank=_known(process.group_rank),
        host=process.host or None,
        pid=_known(process.pid),
    )
    return case.rank(Event("", process.source, 0, "", context))


def _known(number: int) -> int | None:
    return None if number == NOT_KNOWN else number


def _groups(case: Case, curve: Curve) -> list[_Group]:
    """Return the numbers of a metric by rank and source, and all together where each has too few."""
    found: dict[tuple[int | None, str], _Group] = {}
    owner: dict[Process, _Group] = {}
    for process, summary in curve.processes.items():
        key = (_rank(case, process), process.source)
        group = owner[process] = found.setdefault(key, _Group(*key))
        group.summary.absorb(summary)
    sample = curve.sample()
    for point in sample:
        if point.process in owner:
            owner[point.process].points.append(point)
    best = max((group.count for group in found.values()), default=0)
    total = curve.whole.count + curve.whole.strange_count
    if best <= 3 < total and len(found) > 1:
        sources = {process.source for process in curve.processes}
        return [_Group(None, sources.pop() if len(sources) == 1 else None, curve.whole, sample)]
    return list(found.values())


def _in_order(groups: Iterable[_Group], suspects: set[int]) -> list[_Group]:
    """Return the groups by how much they tell: no numbers, suspects, many numbers, high numbers."""

    def key(group: _Group) -> tuple[object, ...]:
        highest = group.summary.highest
        return (
            not group.summary.strange_count,
            group.rank not in suspects,
            -group.count,
            -highest.value if highest is not None else 0.0,
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


def _axis(points: list[Point], one_source: bool) -> str | None:
    """Return what the numbers are drawn against, or None when nothing orders them."""
    steps, epochs = [p.step for p in points], [p.epoch for p in points]
    moments = [p.time for p in points]
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
    groups: list[_Group]
    axis: str
    start: float

    def entry(self, group: _Group) -> dict[str, Any]:
        """Return one curve as data."""
        strange = group.summary.strange
        placed = sorted((self._x(point), point) for point in [*group.chosen(), *strange])
        odd = set(strange)
        summary = group.summary
        everything = [point for _, point in placed]
        return {
            "metric": self.metric.id,
            "title": self.metric.title["en"],
            "title_zh": self.metric.title["zh"],
            "unit": None if self.metric.unit == "none" else self.metric.unit,
            "rank": group.rank,
            "source": group.source,
            "x": self.axis,
            "x_start": times.show(self.start) if self.axis == "time" else None,
            "points": [[x, None if point in odd else _number(point.value)] for x, point in placed],
            "not_finite": [[x, _word(point)] for x, point in placed if point in odd],
            "not_finite_count": summary.strange_count,
            "count": group.count,
            "min": _value(summary.lowest),
            "max": _value(summary.highest),
            "last": _value(summary.last),
            "lines": [min(everything).line, max(everything).line] if group.source is not None else None,
        }

    def _x(self, point: Point) -> float | int:
        if self.axis == "time":
            return _number(point.time - self.start)
        return _number({"step": point.step, "epoch": point.epoch, "line": float(point.line)}[self.axis])


def _value(point: Point | None) -> float | int | None:
    return None if point is None else _number(point.value)


def _word(point: Point) -> str:
    if point.value == NAN:
        return "nan"
    return "inf" if point.value == INFINITE else "-inf"


def _repeats(first: _Group, other: _Group) -> bool:
    """Tell whether a further rank shows nothing of its own: constant numbers, or those that the first one has."""
    lowest, highest = other.summary.lowest, other.summary.highest
    if other.summary.strange_count or lowest is None or highest is None:
        return False
    if lowest.value == highest.value:
        return True
    known = {point.step: point.value for point in first.chosen() if point.step >= 0}
    common = [point for point in other.chosen() if point.step in known]
    return len(common) > 1 and all(point.value == known[point.step] for point in common)


def _panel(case: Case, metric: Metric, curve: Curve, suspects: set[int]) -> _Panel | None:
    """Return what can be drawn of one metric: the groups that share the axis of the first one."""
    groups: list[_Group] = []
    axis: str | None = None
    for group in _in_order(_groups(case, curve), suspects):
        drawn = [*group.chosen(), *group.summary.strange]
        own = _axis(sorted(drawn), group.source is not None)
        if own is None or (axis is not None and own != axis):
            continue
        if axis == "line" and group.source != groups[0].source:
            continue  # the lines of two files do not compare
        if groups and _repeats(groups[0], group):
            continue
        axis = own
        groups.append(group)
    if axis is None:
        return None
    moments = [point.time for group in groups for point in (*group.chosen(), *group.summary.strange)]
    return _Panel(metric, groups[:MAX_RANKS], axis, min(moments))


def describe(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return the curves of the document: first one of each metric, then further ranks while there is room."""
    case = diagnosis.case
    suspects = {c.rank for candidate in diagnosis.candidates[:1] for c in candidate.culprits if c.rank is not None}
    panels: list[_Panel] = []
    for metric in case.rules.series.metrics.values():
        curve = case.observations.curves.curves.get(metric.id)
        panel = _panel(case, metric, curve, suspects) if curve is not None else None
        if panel is not None:
            panels.append(panel)
    turns = [(turn, index) for turn in range(MAX_RANKS) for index, p in enumerate(panels) if turn < len(p.groups)]
    chosen = sorted((index, turn) for turn, index in turns[:MAX_SERIES])
    return [panels[index].entry(panels[index].groups[turn]) for index, turn in chosen]


def last_good_step(diagnosis: Findings) -> dict[str, Any] | None:
    """Return the last training step that certainly stands before the first fault; None without a fault or a step."""
    fault = incident.first_fault(diagnosis)
    if fault is None:
        return None
    case = diagnosis.case
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for event in progress_of(case):
        step = event.number("step")
        if step is not None and event.signature not in _BARS and _event_before(case, event, fault):
            found[event.source, event.line] = _place(
                step, event.source, event.line, event.context.time, case.rank(event)
            )
    for curve in case.observations.curves.curves.values():
        for point in {*curve.sample(), *curve.whole.ends(), *(p for s in curve.processes.values() for p in s.ends())}:
            if point.step >= 0 and _point_before(point, fault):
                time = point.time if point.time >= 0 else None
                rank = _rank(case, point.process)
                found.setdefault((point.source, point.line), _place(point.step, point.source, point.line, time, rank))
    own = [place for place in found.values() if place["path"] == fault.source]
    if own:
        return max(own, key=lambda place: place["line"])
    return max(found.values(), key=lambda place: (place["step"], place["path"], place["line"]), default=None)


def _event_before(case: Case, event: Event, fault: Event) -> bool:
    if case.order_known:
        return case.position(event) < case.position(fault)
    return event.source == fault.source and event.line < fault.line


def _point_before(point: Point, fault: Event) -> bool:
    if point.source == fault.source:
        return point.line < fault.line
    time = fault.context.time
    if time is None or point.time < 0 or times.has_year(time) != times.has_year(point.time):
        return False
    return point.time < time


def _place(step: float, path: str, line: int, time: float | None, rank: int | None) -> dict[str, Any]:
    shown = times.show(time) if time is not None else None
    return {"step": int(step), "path": path, "line": line, "time": shown, "rank": rank}
