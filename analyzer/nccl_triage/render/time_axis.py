"""The story as lanes of ranks over time: only what carries a time is drawn, at its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from nccl_triage.render.chart_symbols import ROLE_SHAPES, WIDTH, pixel, shape
from nccl_triage.render.vocabulary import Pair
from nccl_triage.render.words import Document, cut, place, visible, word

#: Maximum number of lanes, and how many of them hold several ranks.
MAX_LANES, FOLDED_LANES = 9, 3
_GUTTER, _RIGHT, _LANE, _TOP, _NEAR = 170, 24, 24, 34, 11
#: The longest story that is drawn, in seconds.
_LONGEST = 30 * 86400.0
#: Seconds between two ticks of the axis; the first one that leaves few enough ticks is used.
_STEPS = (
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14400,
    21600,
    43200,
    86400,
    172800,
    432000,
)
_TICKS = 6
#: Fewest moments that make a drawing worth more than a list.
_MOMENTS = 3

_Lane = tuple[int, int, str]


@dataclass(frozen=True)
class TimelineMark:
    """One event, or several of one lane that fall together; ``first`` is the word for the first fault."""

    x: int
    y: int
    role: str
    path: str
    count: int
    tip: str
    first: str = ""


@dataclass(frozen=True)
class Wait:
    """A span in which the ranks of a lane waited in the collective that timed out."""

    x: int
    y: int
    width: int
    tip: str


@dataclass(frozen=True)
class Timeline:
    """The parts of the drawing; ``links`` lead from the fault to its consequences, ``unit`` is what the axis shows."""

    height: int
    lanes: list[tuple[int, Pair]]
    marks: list[TimelineMark]
    ticks: list[tuple[int, str]]
    fault: TimelineMark | None
    waits: list[Wait]
    links: list[str]
    unit: str


def seconds(text: object, year: int = 1970) -> float | None:
    """Return a printed time as seconds, or None; a stamp without a year is of the year given."""
    printed = str(text)[:26].replace(",", ".")
    try:
        moment = datetime.fromisoformat(printed if printed[4:5] == "-" else f"{year:04d}-{printed}")
    except ValueError:
        return None
    return (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()


def _year(document: Document) -> int:
    """Return the year of the first time that has one; a leap year where none has."""
    told = [event.get("time") for event in document.get("timeline") or []]
    known = (str(time)[:4] for time in told if time and str(time)[4:5] == "-")
    return next((int(year) for year in known if year.isdecimal() and int(year)), 1972)


def first_fault(document: Document) -> tuple[Any, Any] | None:
    """Return the (path, line) of the event that is marked as the first fault."""
    if document.get("verdict") == "healthy":
        return None
    events = document.get("timeline") or []
    known = {(e.get("path"), e.get("line")) for e in events}
    told = (document.get("incident") or {}).get("first_fault") or {}
    if (told.get("path"), told.get("line")) in known:
        return told["path"], told["line"]
    for diagnosis in (document.get("diagnoses") or [])[:1]:
        for item in diagnosis.get("evidence") or []:
            if item.get("weight") == "decisive" and (item.get("path"), item.get("line")) in known:
                return item["path"], item["line"]
    return next(((e.get("path"), e.get("line")) for e in events if e.get("role") == "root"), None)


def placed(
    document: Document, limit: int = 200
) -> tuple[list[tuple[Mapping[str, Any], float]], list[Mapping[str, Any]]]:
    """Return the events that have a place on the axis with it, and those that have none.

    The first fault without a time of its own stands at about the time of its nearest line. A time more than a month off
    the others belongs to another clock. The ends of the incident are events, too.
    """
    year, fault = _year(document), first_fault(document)
    incident = document.get("incident") or {}
    timed: list[tuple[Mapping[str, Any], float]] = []
    apart: list[Mapping[str, Any]] = []
    events = [*(document.get("timeline") or [])[:limit]]
    known = {(event.get("path"), event.get("line")) for event in events}
    ends = [incident.get(key) or {} for key in ("last_progress", "first_fault", "end")]
    for event in [*events, *(end for end in ends if end and (end.get("path"), end.get("line")) not in known)]:
        time = seconds(event.get("time"), year)
        if time is None and incident.get("about") and fault == (event.get("path"), event.get("line")):
            time = seconds(incident.get("started"), year)
        if time is None:
            apart.append(event)
        else:
            timed.append((event, time))
    middle = sorted(time for _, time in timed)[len(timed) // 2] if timed else 0.0
    apart += [event for event, time in timed if abs(time - middle) >= _LONGEST]
    return [(event, time) for event, time in timed if abs(time - middle) < _LONGEST], apart


def _lane_key(event: Mapping[str, Any]) -> _Lane:
    rank, host = event.get("rank"), event.get("host")
    if rank is not None:
        return 0, int(rank), ""
    return (1, 0, str(host)) if host else (2, 0, "")


def _lane_labels(events: Sequence[Mapping[str, Any]], leading: set[_Lane]) -> tuple[dict[_Lane, int], list[Pair]]:
    """Return the lane of each rank or host, and the labels; the first ones have a lane of their own."""
    hosts = {_lane_key(e): str(e.get("host") or "") for e in events}
    keys = sorted(hosts)
    room = len(keys) if len(keys) <= MAX_LANES else MAX_LANES - FOLDED_LANES
    alone = sorted(sorted(keys, key=lambda k: (k not in leading and k[0] < 2, k))[:room])
    folded = [key for key in keys if key not in set(alone)]
    lanes: dict[_Lane, int] = {}
    labels: list[Pair] = []
    for key in alone:
        lanes[key] = len(labels)
        name = " ".join(p for p in (f"rank {key[1]}" if key[0] == 0 else "", hosts[key]) if p)
        name = cut(visible(name, 200), 24)
        labels.append(Pair(name, name) if name else Pair(word("job_lane", "en"), word("job_lane", "zh")))
    size = -(-len(folded) // FOLDED_LANES) if folded else 1
    for start in range(0, len(folded), size):
        part = folded[start : start + size]
        lanes.update(dict.fromkeys(part, len(labels)))
        ends = [f"rank {k[1]}" if k[0] == 0 else k[2] or "-" for k in (part[0], part[-1])]
        span = cut(visible(f"{ends[0]} .. {ends[1].removeprefix('rank ')} ({len(part)})", 200), 26)
        labels.append(Pair(span, span))
    return lanes, labels


def _ticks(low: float, high: float, x: Callable[[float], int]) -> list[tuple[int, str]]:
    """Return round times with their places, a few over the whole width."""
    step = next((size for size in _STEPS if (high - low) / size <= _TICKS), _STEPS[-1])
    pattern = (
        "%m-%d" if step >= 86400 else "%m-%d %H:%M" if high - low > 86400 else "%H:%M:%S" if step < 60 else "%H:%M"
    )
    found, at = [], -(-low // step) * step
    while at <= high:
        moment = datetime.fromtimestamp(at, tz=timezone.utc)
        found.append((x(at), moment.strftime(pattern) + (".5" if at % 1 else "")))
        at += step
    return found


def timeline(document: Document, limit: int = 200) -> Timeline | None:
    """Return the drawing of the first ``limit`` events, or None where fewer than two moments are known."""
    found, _ = placed(document, limit)
    events = [event for event, _ in found]
    fault = first_fault(document)
    if len({time for _, time in found}) < _MOMENTS and not document.get("waits"):
        return None
    blamed = {c.get("rank") for d in (document.get("diagnoses") or [])[:1] for c in d.get("culprits") or []}
    leading = {_lane_key(e) for e in events if e.get("role") == "root" or e.get("rank") in blamed - {None}}
    leading |= {_lane_key(e) for e in events if fault == (e.get("path"), e.get("line"))}
    leading = leading or {_lane_key(e) for e in events if e.get("role") == "cascade"}
    lanes, labels = _lane_labels(events, leading)
    spans = _spans(document, lanes)
    moments = [time for _, time in found] + [time for span in spans.values() for time in span]
    low, high = min(moments, default=0.0), max(moments, default=0.0)
    if high - low >= _LONGEST:
        low, high, spans = min(time for _, time in found), max(time for _, time in found), {}
    if high <= low:
        return None
    scale = (WIDTH - _GUTTER - _RIGHT - 2 * _NEAR) / (high - low)

    def x(value: float) -> int:
        return pixel(_GUTTER + _NEAR + (value - low) * scale)

    groups: dict[tuple[int, str, bool, int], list[Mapping[str, Any]]] = {}
    for event, time in found:
        is_fault = fault == (event.get("path"), event.get("line"))
        fault = None if is_fault else fault  # one line may be several events: the first is marked
        at = x(time) if is_fault else round(x(time) / _NEAR) * _NEAR
        groups.setdefault((lanes[_lane_key(event)], str(event.get("role")), is_fault, at), []).append(event)
    marks = [_mark(key, together) for key, together in groups.items()]
    marks.sort(key=lambda m: (bool(m.first), m.role == "root", m.y, m.x))
    rows = [(_middle(i), label) for i, label in enumerate(labels)]
    shown = next((m for m in marks if m.first), None)
    waits = [_wait(labels[lane], lane, x(start), x(end)) for lane, (start, end) in sorted(spans.items())]
    ticks = _ticks(low, high, x)
    height = _TOP + len(labels) * _LANE + 12
    unit = datetime.fromtimestamp(low, tz=timezone.utc).strftime("%Y-%m-%d" if _year(document) != 1972 else "%m-%d")
    return Timeline(height, rows, marks, ticks, shown, waits, _links(shown, marks), unit)


def _middle(lane: int) -> int:
    return _TOP + _LANE * lane + _LANE // 2


def _spans(document: Document, lanes: Mapping[_Lane, int]) -> dict[int, tuple[float, float]]:
    """Return for each lane from when to when its ranks waited in the collective."""
    found: dict[int, tuple[float, float]] = {}
    year = _year(document)
    for wait in document.get("waits") or []:
        start, end = seconds(wait.get("since"), year), seconds(wait.get("until"), year)
        lane = lanes.get((0, int(wait.get("rank") or 0), ""))
        if start is None or end is None or lane is None or end < start:
            continue
        before = found.get(lane, (start, end))
        found[lane] = (min(before[0], start), max(before[1], end))
    return found


def _wait(label: Pair, lane: int, start: int, end: int) -> Wait:
    return Wait(start, _middle(lane) - 5, max(end - start, 2), label.en)


def _links(fault: TimelineMark | None, marks: Sequence[TimelineMark]) -> list[str]:
    """Return a curve from the first fault to the first consequence after it in every other lane."""
    if fault is None:
        return []
    first: dict[int, TimelineMark] = {}
    for mark in marks:
        if mark.role == "cascade" and mark.x >= fault.x and mark.y != fault.y:
            known = first.get(mark.y)
            first[mark.y] = mark if known is None or mark.x < known.x else known
    paths = []
    for mark in first.values():
        # Down along the fault's line, then across to the mark: a bundle that leaves the lanes readable.
        bend = fault.x + min(max((mark.x - fault.x) // 2, 4), 60)
        paths.append(
            f"M{fault.x} {fault.y}C{fault.x} {mark.y} {fault.x} {mark.y} {bend} {mark.y}L{mark.x - 7} {mark.y}"
        )
    return sorted(paths)


def _mark(key: tuple[int, str, bool, int], events: Sequence[Mapping[str, Any]]) -> TimelineMark:
    lane, role, is_fault, at = key
    # What is marked as the first fault is drawn as one, whatever role its line has in general; a consequence that
    # comes first is only the first sign of a fault that the log does not show.
    word_of_first = "" if not is_fault else "first_sign" if role == "cascade" else "first_fault"
    role, y = "root" if word_of_first == "first_fault" else role, _middle(lane)
    radius = 9 if is_fault else 6 if role == "root" else 5
    first = events[0]
    who = "" if first.get("rank") is None else f"rank {first['rank']} "
    tip = f"{who}{first.get('time') or ''} {first.get('signature')} {place(first)}: {first.get('text') or ''}"
    more = f" (+{len(events) - 1})" if len(events) > 1 else ""
    path = shape(ROLE_SHAPES.get(role, "dot"), at, y, radius)
    return TimelineMark(at, y, role, path, len(events), visible(tip, 200) + more, word_of_first)
