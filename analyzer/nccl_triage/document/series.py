"""The curves of a report: loss, memory, step time and throughput as the programs printed them, with marks on them.

Every curve is an honest sample: at most ``MAX_POINTS`` of the printed numbers, the first, last, lowest and highest
among those that were read, none of them averaged or smoothed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.engine.metric_formats import Metric
from nccl_triage.observations.curves import NOT_KNOWN, CurveProcess, CurveRow
from nccl_triage.observations.event import Context, Event
from nccl_triage.parsers import times

#: Maximum number of points of a curve, and the count of numbers up to which all ranks share one curve.
MAX_POINTS, FEW = 240, 3


@dataclass(slots=True)
class CurveGroup:
    """The numbers of one metric by one rank in one source; rank None and source None for all together."""

    rank: int | None
    source: str | None
    #: Row -> its number, in the order in which the rows are to be drawn when there is no room for all.
    values: dict[CurveRow, float] = field(default_factory=dict)
    strange: dict[CurveRow, str] = field(default_factory=dict)
    strange_count: int = 0
    #: How many numbers the program printed, and whether that is an estimate.
    printed: float = 0.0
    sampled: bool = False

    @property
    def count(self) -> int:
        """How many numbers there are to draw."""
        return len(self.values) + len(self.strange)

    def ends(self) -> list[CurveRow]:
        """Return the first, last, lowest and highest row."""
        if not self.values:
            return []
        low = min(self.values, key=lambda row: (self.values[row], row))
        high = max(self.values, key=lambda row: (self.values[row], row))
        return [min(self.values), max(self.values), low, high]

    def chosen(self) -> list[CurveRow]:
        """Return the rows to draw, in order: the extremes, and as many others as there is room for."""
        ends = dict.fromkeys(self.ends())
        others = [row for row in self.values if row not in ends and row not in self.strange]
        room = MAX_POINTS - len(ends) - len(self.strange)
        return sorted({*ends, *others[:room], *self.strange})

    def absorb(self, other: CurveGroup) -> None:
        """Take over the numbers of another group."""
        self.values.update(other.values)
        self.strange.update(other.strange)
        self.strange_count += other.strange_count
        self.printed += other.printed
        self.sampled = self.sampled or other.sampled


def rank_of(case: Case, process: CurveProcess) -> int | None:
    """Return the global rank of the process that printed a line, or None."""
    context = Context(
        rank=_or_none(process.rank),
        local_rank=_or_none(process.local_rank),
        group_rank=_or_none(process.group_rank),
        host=process.host or None,
        pid=_or_none(process.pid),
    )
    return case.rank(Event("", process.source, 0, "", context))


def _or_none(number: int) -> int | None:
    return None if number == NOT_KNOWN else number


def collect(case: Case) -> dict[str, list[CurveGroup]]:
    """Return the groups of each metric: by rank and source, or all together where each has too few numbers."""
    table = case.observations.curves
    shares = {kind: sample.share() for kind, sample in table.samples.items()}
    ranks: dict[CurveProcess, int | None] = {}
    groups: dict[str, dict[tuple[int | None, str], CurveGroup]] = {}

    def group(metric: str, row: CurveRow) -> CurveGroup:
        if row.process not in ranks:
            ranks[row.process] = rank_of(case, row.process)
        key = (ranks[row.process], row.source)
        return groups.setdefault(metric, {}).setdefault(key, CurveGroup(*key))

    for _, kind, row in table.sampled():
        for metric, value in row.values:
            found = group(metric, row)
            found.values[row] = value
            found.printed += 1 / shares[kind]
            found.sampled = found.sampled or shares[kind] < 1
    for row in table.outermost():
        for metric, value in row.values:
            group(metric, row).values.setdefault(row, value)
    for metric, (rows, number) in sorted(table.strange.items()):
        for row in rows:
            found = group(metric, row)
            found.strange[row] = dict(row.strange)[metric]
            found.strange_count = number if len(rows) < number else len(found.strange)
    return {metric: _together(list(found.values())) for metric, found in groups.items()}


def _together(groups: list[CurveGroup]) -> list[CurveGroup]:
    """Return the groups, or all of them as one when each has too few numbers for a curve."""
    if len(groups) < 2 or max(group.count for group in groups) > FEW or sum(group.count for group in groups) <= FEW:
        return groups
    sources = {group.source for group in groups}
    whole = CurveGroup(None, sources.pop() if len(sources) == 1 else None)
    for group in groups:
        whole.absorb(group)
    return [whole]


#: Signature -> what the mark is called.
KINDS = {
    "steps.slow_rank": "slow_rank",
    "steps.slow_down": "slow_down",
    "steps.throughput_drop": "throughput_drop",
    "steps.loss_spike": "spike",
    "steps.loss_not_finite": "not_finite",
}
#: Maximum number of marks on one curve.
MAX_MARKS = 8


class CurveMarks:
    """The marks of curves: places such as the last good step, on any axis."""

    def __init__(self, case: Case, last_good: dict[str, Any] | None) -> None:
        self._case = case
        self._events = case.of(*KINDS)
        self._last_good = last_good

    def of(self, series: dict[str, Any], start: float) -> list[dict[str, Any]]:
        """Return the marks of one curve of the document; ``start`` is the time at which a time axis begins."""
        found: list[dict[str, Any]] = []
        good = self._last_good
        if good is not None:
            moment = times.from_stamp(good["time"]) if series["x"] == "time" and good["time"] else None
            at = _place(series, start, good["path"], good["line"], good["step"], moment)
            found += _mark("last_good", good["path"], good["line"], at)
        for event in self._events:
            if event.fields["metric"] == series["metric"] and self._is_of(event, series):
                at = _place(series, start, event.source, event.line, event.number("step"), event.context.time)
                found += _mark(KINDS[event.signature], event.source, event.line, at)
        points = [x for x, _ in series["points"]]
        inside = [mark for mark in found if points and points[0] <= mark["x"] <= points[-1]]
        return inside[:MAX_MARKS]

    def _is_of(self, event: Event, series: dict[str, Any]) -> bool:
        same_rank = series["rank"] is None or self._case.rank(event) == series["rank"]
        return same_rank and series["source"] in (None, event.source)


def _place(
    series: dict[str, Any], start: float, path: str, line: int, step: float | None, time: float | None
) -> float | None:
    """Return where a line stands on the axis of a curve, None where that is not known."""
    if series["x"] == "step":
        return step
    if series["x"] == "time":
        return None if time is None else time - start
    return float(line) if series["x"] == "line" and path == series["source"] else None


def _mark(kind: str, path: str, line: int, at: float | None) -> list[dict[str, Any]]:
    if at is None:
        return []
    x = int(at) if at == int(at) else float(f"{at:.7g}")
    return [{"kind": kind, "x": x, "path": path, "line": line}]


#: Maximum number of curves in a document, and of one metric.
MAX_SERIES, MAX_RANKS = 12, 4
#: Fewer numbers than this are not drawn.
MIN_POINTS = 2
#: A step may fall back by this share of the range (ranks that interleave); more means a restart or a new epoch.
_FALL_BACK = 0.1


def _in_order(groups: Iterable[CurveGroup], suspects: set[int]) -> list[CurveGroup]:
    """Return the groups, the most telling first: non-finite numbers, suspects, many numbers, high numbers."""

    def key(group: CurveGroup) -> tuple[object, ...]:
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
    """Tell whether values increase, apart from small steps back, so that they can serve as an axis."""
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
    groups: list[CurveGroup]
    axis: str
    start: float

    def entry(self, group: CurveGroup, marks: CurveMarks) -> dict[str, Any]:
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


def _repeats(first: CurveGroup, other: CurveGroup) -> bool:
    """Tell whether another rank adds nothing: its numbers are constant, or equal those of the first one."""
    if other.strange:
        return False
    if len(set(other.values.values())) == 1:
        return True
    known = {row.step: value for row, value in first.values.items() if row.step >= 0}
    common = [(value, known[row.step]) for row, value in other.values.items() if row.step in known]
    return len(common) > 1 and all(one == two for one, two in common)


def _panel(metric: Metric, groups: list[CurveGroup], suspects: set[int]) -> _Panel | None:
    """Return the groups of one metric that share the axis of the first one."""
    chosen: list[CurveGroup] = []
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


def describe(diagnosis: Findings, last_good: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the curves of the document: first one of each metric, then further ranks while there is room.

    ``last_good`` is the last good step before the fault, to be marked on each curve.
    """
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
    marks = CurveMarks(case, last_good)
    return [panels[index].entry(panels[index].groups[turn], marks) for index, turn in chosen]
