"""Charts of ranks: the grid of ranks by host, and the story as lanes of ranks over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from nccl_triage.render.chart_symbols import ROLE_SHAPES, SHAPES, SUSPECTS, WIDTH, pixel, shape
from nccl_triage.render.words import Document, Pair, columns, cut, place, rank_ranges, visible, word

#: Maximum number of ranks drawn, and of those drawn as labelled cells.
MAX_RANKS, MAX_CELLS = 4096, 64


@dataclass
class RankGrid:
    """The rank grid: labelled cells for a few ranks, one path per state for many."""

    height: int = 0
    cells: list[dict[str, Any]] = field(default_factory=list)
    paths: list[tuple[str, str]] = field(default_factory=list)
    labels: list[tuple[int, int, str]] = field(default_factory=list)
    legend: list[tuple[str, str, int, str]] = field(default_factory=list)
    not_drawn: int = 0


def _by_host(ranks: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    hosts: dict[str, list[Mapping[str, Any]]] = {}
    for entry in ranks:
        hosts.setdefault(str(entry.get("host") or ""), []).append(entry)
    return list(hosts.items())


def state_of(entry: Mapping[str, Any]) -> str:
    """Return a rank's state; a state of a newer document counts as unknown."""
    state = str(entry.get("state"))
    return state if state in SHAPES else "unknown"


def rank_grid(document: Document, limit: int = MAX_RANKS) -> RankGrid | None:
    """Return the grid of ranks by host, or None when no rank is known."""
    ranks = sorted((document.get("job") or {}).get("ranks") or [], key=lambda e: e.get("rank") or 0)
    if not ranks:
        return None
    states = Counter(map(state_of, ranks))
    grid = RankGrid()
    for state, kind in SHAPES.items():
        if states[state]:
            numbers = rank_ranges(e.get("rank") or 0 for e in ranks if state_of(e) == state)
            grid.legend.append((state, shape(kind, 9, 9, 6), states[state], cut(numbers, 60)))
    if len(ranks) > limit:
        commonest = states.most_common(1)[0][0]
        kept = [e for e in ranks if state_of(e) != commonest][:limit]
        grid.not_drawn, ranks = len(ranks) - len(kept), kept
    (_cells if len(ranks) <= MAX_CELLS else _mosaic)(grid, ranks)
    return grid


def _cells(grid: RankGrid, ranks: Sequence[Mapping[str, Any]]) -> None:
    wide, tall, y = 116, 52, 0
    for host, entries in _by_host(ranks):
        if host:
            grid.labels.append((2, y + 14, cut(visible(host, 200), 60)))
            y += 22
        for i, entry in enumerate(entries):
            left, top, state = (i % 8) * wide + 2, y + (i // 8) * tall, state_of(entry)
            error = entry.get("first_error") or {}
            tip = f"{error.get('signature')} {place(error)}" if error else ""
            path = shape(SHAPES[state], left + 16, top + 22, 7)
            cell = {"x": left, "y": top, "rank": entry.get("rank") or 0, "state": state}
            grid.cells.append({**cell, "path": path, "tip": visible(tip, 200)})
        y += -(-len(entries) // 8) * tall + 6
    grid.height = y


def _mosaic(grid: RankGrid, ranks: Sequence[Mapping[str, Any]]) -> None:
    """Blocks of small marks, one block per host, flowing over the width."""
    step, parts, x, y, tallest = 14, dict[str, list[str]](), 0, 0, 0
    for host, entries in _by_host(ranks):
        across = min(len(entries), 64)
        wide = max(across * step, 56) + 10
        tall = -(-len(entries) // 64) * step + 20
        if x and x + wide > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        tallest = max(tallest, tall + 6)
        label = visible(host, 200) or f"rank {entries[0].get('rank')}"
        room = max((wide - 10) // 7, 6)
        # Hosts of one cluster differ at the end of their names.
        grid.labels.append((x + 1, y + 12, label if columns(label) <= room else ".." + label[-(room - 2) :]))
        for i, entry in enumerate(entries):
            at = x + (i % 64) * step + 7, y + 25 + (i // 64) * step
            state = state_of(entry)
            parts.setdefault(state, []).append(shape(SHAPES[state], *at, 5))
            if state in SUSPECTS:
                parts.setdefault("mark", []).append(shape("square", *at, 7))
        x += wide
    grid.paths = [(state, "".join(parts[state])) for state in ("mark", *reversed(SHAPES)) if state in parts]
    grid.height = y + tallest


#: Maximum number of lanes, and how many of them hold several ranks.
MAX_LANES, FOLDED_LANES = 20, 6
_GUTTER, _RIGHT, _LANE, _TOP, _NEAR = 170, 24, 26, 34, 11
_MONTH = 30 * 86400.0


@dataclass(frozen=True)
class TimelineMark:
    """One event of the timeline, or several of one lane that fall together; ``first`` is the word for the first fault."""

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
    """The timeline's parts; ``by_time`` tells what the horizontal axis is, ``links`` lead from the fault to its consequences."""

    height: int
    lanes: list[tuple[int, Pair]]
    marks: list[TimelineMark]
    ticks: list[tuple[int, str]]
    by_time: bool
    fault: TimelineMark | None
    waits: list[Wait]
    links: list[str]


def seconds(text: object) -> float | None:
    """Return a printed time as seconds, or None."""
    try:
        moment = datetime.fromisoformat(str(text)[:26].replace(",", "."))
    except ValueError:
        return None
    return (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()


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


def _positions(events: Sequence[Mapping[str, Any]]) -> tuple[list[float], bool]:
    """Return a position per event: its time where most have one, else its place in the order."""
    times = [seconds(e.get("time")) for e in events]
    known = [t for t in times if t is not None]
    if len(known) * 10 < len(events) * 6 or not 0 < max(known, default=0) - min(known, default=0) < _MONTH:
        return [float(i) for i in range(len(events))], False
    placed, last = [], known[0]
    for time in times:
        last = last if time is None else time
        placed.append(last)
    return placed, True


def _lane_key(event: Mapping[str, Any]) -> tuple[int, int, str]:
    rank, host = event.get("rank"), event.get("host")
    if rank is not None:
        return 0, int(rank), ""
    return (1, 0, str(host)) if host else (2, 0, "")


def _lane_labels(
    events: Sequence[Mapping[str, Any]], leading: set[tuple[int, int, str]]
) -> tuple[dict[tuple[int, int, str], int], list[Pair]]:
    """Return the lane of each rank or host, and the labels; the first ones have a lane of their own."""
    hosts = {_lane_key(e): str(e.get("host") or "") for e in events}
    keys = sorted(hosts)
    room = len(keys) if len(keys) <= MAX_LANES else MAX_LANES - FOLDED_LANES
    alone = sorted(sorted(keys, key=lambda k: (k not in leading and k[0] < 2, k))[:room])
    folded = [key for key in keys if key not in set(alone)]
    lanes: dict[tuple[int, int, str], int] = {}
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


def _ticks(low: float, high: float, orders: Sequence[Any] | None, x: Any) -> list[tuple[int, str]]:
    steps = [low + (high - low) * i / 4 for i in range(5)]
    if orders is not None:
        return [(x(v), str(orders[v])) for v in sorted({round(v) for v in steps})]
    pattern = "%m-%d %H:%M" if high - low > 86400 else "%H:%M:%S"
    moments = [datetime.fromtimestamp(v, tz=timezone.utc) for v in steps]
    return [(x(v), m.strftime(pattern)) for v, m in zip(steps, moments, strict=True)]


def timeline(document: Document, limit: int = 200) -> Timeline | None:
    """Return the timeline of the first ``limit`` events, or None without events."""
    events = (document.get("timeline") or [])[:limit]
    if not events:
        return None
    fault = first_fault(document)
    blamed = {c.get("rank") for d in (document.get("diagnoses") or [])[:1] for c in d.get("culprits") or []}
    leading = {_lane_key(e) for e in events if e.get("role") == "root" or e.get("rank") in blamed - {None}}
    lanes, labels = _lane_labels(events, leading)
    places, by_time = _positions(events)
    spans = _spans(document, lanes) if by_time else {}
    low = min([*places, *(start for start, _ in spans.values())])
    high = max([*places, *(end for _, end in spans.values())])
    if high - low >= _MONTH:
        low, high, spans = min(places), max(places), {}
    scale = (WIDTH - _GUTTER - _RIGHT - 2 * _NEAR) / ((high - low) or 1)

    def x(value: float) -> int:
        return pixel(_GUTTER + _NEAR + (value - low) * scale)

    groups: dict[tuple[int, str, bool, int], list[Mapping[str, Any]]] = {}
    for event, position in zip(events, places, strict=True):
        is_fault = fault == (event.get("path"), event.get("line"))
        fault = None if is_fault else fault  # one line may be several events: the first is marked
        at = x(position) if is_fault else round(x(position) / _NEAR) * _NEAR
        groups.setdefault((lanes[_lane_key(event)], str(event.get("role")), is_fault, at), []).append(event)
    marks = [_mark(key, found) for key, found in groups.items()]
    marks.sort(key=lambda m: (bool(m.first), m.role == "root", m.y, m.x))
    rows = [(_middle(i), label) for i, label in enumerate(labels)]
    orders = None if by_time else [e.get("order") for e in events]
    shown = next((m for m in marks if m.first), None)
    waits = [_wait(labels[lane], lane, x(start), x(end)) for lane, (start, end) in sorted(spans.items())]
    height = _TOP + len(labels) * _LANE + 12
    return Timeline(height, rows, marks, _ticks(low, high, orders, x), by_time, shown, waits, _links(shown, marks))


def _middle(lane: int) -> int:
    return _TOP + _LANE * lane + _LANE // 2


def _spans(document: Document, lanes: Mapping[tuple[int, int, str], int]) -> dict[int, tuple[float, float]]:
    """Return for each lane from when to when its ranks waited in the collective."""
    found: dict[int, tuple[float, float]] = {}
    for wait in document.get("waits") or []:
        start, end = seconds(wait.get("since")), seconds(wait.get("until"))
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
