"""The grid of ranks by host: who did what, and who is at fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.render.chart_symbols import SHAPES, SUSPECTS, WIDTH, shape
from nccl_triage.render.words import Document, columns, cut, place, rank_ranges, visible

#: Maximum number of ranks drawn, and of those drawn as labelled cells.
MAX_RANKS, MAX_CELLS = 4096, 16
#: Pixels between two hosts of many: eight hosts of eight ranks stand in a row.
_APART = 7


@dataclass
class RankGrid:
    """The rank grid: labelled cells for a few ranks, one path per state for many; a label tells whether its host is at fault."""

    height: int = 0
    cells: list[dict[str, Any]] = field(default_factory=list)
    paths: list[tuple[str, str]] = field(default_factory=list)
    labels: list[tuple[int, int, str, bool]] = field(default_factory=list)
    legend: list[tuple[str, str, int, str]] = field(default_factory=list)
    not_drawn: int = 0


def _short(host: str) -> str:
    """Return the first part of a host's name: one host may be told with and without its domain. Addresses stay whole."""
    first = host.partition(".")[0]
    return first if first and not first.isdecimal() and ":" not in host else host


def hosts_of(document: Document) -> dict[int, str]:
    """Return the host of each rank, by its short name, as far as it is known or the layout leaves one choice.

    Launchers number the ranks of a host one after the other, equally many on each. Where all that is known keeps to such
    blocks, a rank of no known host belongs to the host of its block; and if one block and one host are left over, they
    belong together.
    """
    job = document.get("job") or {}
    entries = job.get("ranks") or []
    known = {int(e.get("rank") or 0): _short(str(e["host"])) for e in entries if e.get("host")}
    names = [_short(str(h.get("name"))) for h in job.get("hosts") or [] if h.get("name")]
    wide = max(Counter(known.values()).values(), default=0)
    blocks: dict[int, set[str]] = {}
    for rank, host in known.items():
        blocks.setdefault(rank // wide, set()).add(host)
    owners = [next(iter(found)) for found in blocks.values() if len(found) == 1]
    if len(owners) < len(blocks) or len(set(owners)) < len(owners):
        return known
    left = [name for name in dict.fromkeys(names) if name not in owners]
    bare = {int(e.get("rank") or 0) // wide for e in entries if not e.get("host")} - set(blocks) if wide else set()
    if len(left) == len(bare) == 1:
        blocks[bare.pop()] = {left[0]}
    missing = (int(e.get("rank") or 0) for e in entries if not e.get("host"))
    return known | {rank: next(iter(blocks[rank // wide])) for rank in missing if wide and rank // wide in blocks}


def world(document: Document) -> tuple[int, bool]:
    """Return the number of ranks of the job, and whether it is known; else the fewest that the log shows."""
    job = document.get("job") or {}
    seen = max([len(job.get("ranks") or []), *(int(e.get("rank") or 0) + 1 for e in job.get("ranks") or [])])
    told = job.get("world_size")
    return (told, True) if isinstance(told, int) and told >= seen else (seen, False)


def _by_host(ranks: Sequence[Mapping[str, Any]], hosts: Mapping[int, str]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for entry in ranks:
        found.setdefault(hosts.get(int(entry.get("rank") or 0), ""), []).append(entry)
    return list(found.items())


def state_of(entry: Mapping[str, Any]) -> str:
    """Return a rank's state; a state of a newer document counts as unknown."""
    state = str(entry.get("state"))
    return state if state in SHAPES else "unknown"


def rank_grid(document: Document, limit: int = MAX_RANKS) -> RankGrid | None:
    """Return the grid of ranks by host; None when there are not two ranks, or none of them stands out."""
    ranks = sorted((document.get("job") or {}).get("ranks") or [], key=lambda e: e.get("rank") or 0)
    states = Counter(map(state_of, ranks))
    hosts = hosts_of(document)
    blamed = {
        _short(str(culprit["host"]))
        for diagnosis in (document.get("diagnoses") or [])[:1]
        for culprit in diagnosis.get("culprits") or []
        if culprit.get("host") and document.get("verdict") == "diagnosed"
    }
    blamed &= set(hosts.values()) if len(set(hosts.values())) > 1 else set()
    if len(ranks) < 2 or (len(states) < 2 and not blamed):
        return None
    grid = RankGrid()
    for state, kind in SHAPES.items():
        if states[state]:
            numbers = rank_ranges(e.get("rank") or 0 for e in ranks if state_of(e) == state)
            grid.legend.append((state, shape(kind, 9, 9, 6), states[state], cut(numbers, 60)))
    if len(ranks) > limit:
        commonest = states.most_common(1)[0][0]
        kept = [e for e in ranks if state_of(e) != commonest][:limit]
        grid.not_drawn, ranks = len(ranks) - len(kept), kept
    (_cells if len(ranks) <= MAX_CELLS else _mosaic)(grid, _by_host(ranks, hosts), blamed)
    return grid


def _cells(grid: RankGrid, hosts: Sequence[tuple[str, list[Mapping[str, Any]]]], blamed: set[str]) -> None:
    wide, tall, x, y = 116, 52, 0, 0
    head = 22 if any(host for host, _ in hosts) else 2
    for host, entries in hosts:
        needed = min(len(entries), 8) * wide
        if x and x + needed > WIDTH:
            x, y = 0, grid.height
        if host:
            grid.labels.append((x + 2, y + 14, cut(visible(host, 200), needed // 7), host in blamed))
        for i, entry in enumerate(entries):
            left, top, state = x + (i % 8) * wide + 2, y + head + (i // 8) * tall, state_of(entry)
            error = entry.get("first_error") or {}
            tip = f"{error.get('signature')} {place(error)}" if error else ""
            path = shape(SHAPES[state], left + 16, top + 22, 7)
            cell = {"x": left, "y": top, "rank": entry.get("rank") or 0, "state": state}
            grid.cells.append({**cell, "path": path, "tip": visible(tip, 200)})
        grid.height = max(grid.height, y + head + -(-len(entries) // 8) * tall + 6)
        x += needed + 12


def _mosaic(grid: RankGrid, hosts: Sequence[tuple[str, list[Mapping[str, Any]]]], blamed: set[str]) -> None:
    """Blocks of small marks, one block per host, flowing over the width."""
    step, parts, x, y, tallest = 14, dict[str, list[str]](), 0, 0, 0
    for host, entries in hosts:
        across = min(len(entries), 64)
        wide = max(across * step, 56) + _APART
        tall = -(-len(entries) // 64) * step + 20
        if x and x + wide > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        tallest = max(tallest, tall + 6)
        label = visible(host, 200) or f"rank {entries[0].get('rank')}"
        room = max((wide - _APART) // 7, 6)
        # Hosts of one cluster differ at the end of their names.
        shown = label if columns(label) <= room else ".." + label[-(room - 2) :]
        grid.labels.append((x + 1, y + 12, shown, host in blamed))
        for i, entry in enumerate(entries):
            at = x + (i % 64) * step + 7, y + 25 + (i // 64) * step
            state = state_of(entry)
            parts.setdefault(state, []).append(shape(SHAPES[state], *at, 5))
            if state in SUSPECTS:
                parts.setdefault("mark", []).append(shape("square", *at, 7))
        x += wide
    grid.paths = [(state, "".join(parts[state])) for state in ("mark", *reversed(SHAPES)) if state in parts]
    grid.height = y + tallest
