"""The grid of ranks by host: labelled cells for a few, one path per state for many, so that 4,096 ranks stay small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.render.shapes import SHAPES, SUSPECTS, WIDTH, shape
from nccl_triage.render.words import Document, columns, cut, place, rank_ranges, visible

#: The most ranks drawn at all, and as labelled cells.
MAX_RANKS, MAX_CELLS = 4096, 64


@dataclass
class Grid:
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


def rank_grid(document: Document, limit: int = MAX_RANKS) -> Grid | None:
    """Return the grid of ranks by host, or None when no rank is known."""
    ranks = sorted((document.get("job") or {}).get("ranks") or [], key=lambda e: e.get("rank") or 0)
    if not ranks:
        return None
    states = Counter(map(state_of, ranks))
    grid = Grid()
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


def _cells(grid: Grid, ranks: Sequence[Mapping[str, Any]]) -> None:
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


def _mosaic(grid: Grid, ranks: Sequence[Mapping[str, Any]]) -> None:
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
