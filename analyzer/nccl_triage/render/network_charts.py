"""The map of networks with their hosts, the connections that failed between them, and who is at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.render.chart_symbols import WIDTH
from nccl_triage.render.words import Document, columns, cut, visible

#: Maximum number of boxes, of hosts in one box and of arrows; the table lists all.
MAX_BOXES, MAX_HOSTS, MAX_ARROWS = 12, 12, 24
_GAP, _ROW, _HEAD, _ACROSS = 40, 24, 44, 3
_WIDE = (WIDTH - _GAP * (_ACROSS - 1)) // _ACROSS


@dataclass(frozen=True)
class NetworkBox:
    """One network: its place, its name, its kind, and a row for each address in it, the last part telling who is at fault."""

    x: int
    y: int
    width: int
    height: int
    name: str
    kind: str
    rows: list[tuple[int, str, str, bool]]
    more: int


@dataclass(frozen=True)
class FailedArrow:
    """A connection that failed, from the one that called to what could not be reached, with the head of its arrow."""

    path: str
    head: str
    tip: str


@dataclass
class NetworkMap:
    """The map's parts; ``lost`` are failed connections that no arrow shows, because an end is not on the map."""

    height: int = 0
    boxes: list[NetworkBox] = field(default_factory=list)
    arrows: list[FailedArrow] = field(default_factory=list)
    left_out: int = 0


def draw_network_map(document: Document) -> NetworkMap | None:
    """Return the map, or None where no network is known."""
    found = document.get("network") or {}
    networks = found.get("networks") or []
    if not networks:
        return None
    drawn = NetworkMap(left_out=max(0, int(found.get("total") or 0) - MAX_BOXES))
    culprits = [c for d in (document.get("diagnoses") or [])[:1] for c in d.get("culprits") or []]
    blamed = {str(value) for c in culprits for value in (c.get("host"), c.get("address")) if value}
    places: dict[str, tuple[int, int, int, int]] = {}
    hosts: dict[str, str] = {}
    y = 2
    for start in range(0, min(len(networks), MAX_BOXES), _ACROSS):
        row = networks[start : start + _ACROSS]
        tallest = max(_height(network) for network in row)
        for column, network in enumerate(row):
            box = _box(network, column * (_WIDE + _GAP), y, blamed)
            drawn.boxes.append(box)
            for middle, member in zip((row_[0] for row_ in box.rows), network.get("members") or [], strict=False):
                places.setdefault(str(member.get("address")), (box.x, middle - 4, column, start))
                hosts.setdefault(str(member.get("host")), str(member.get("address")))
        y += tallest + _GAP
    drawn.height = y - _GAP + 4
    for failed in (found.get("failed") or [])[:MAX_ARROWS]:
        source = places.get(hosts.get(str(failed.get("from")), ""))
        target = places.get(str(failed.get("address")))
        if source and target and source != target:
            drawn.arrows.append(_arrow(source, target, failed))
    return drawn


def _height(network: Mapping[str, Any]) -> int:
    members = network.get("members") or []
    more = int(network.get("total") or 0) > MAX_HOSTS
    return _HEAD + _ROW * (min(len(members), MAX_HOSTS) + more) + 8


def _box(network: Mapping[str, Any], x: int, y: int, blamed: set[str]) -> NetworkBox:
    members: Sequence[Mapping[str, Any]] = network.get("members") or []
    rows = []
    for i, member in enumerate(members[:MAX_HOSTS]):
        name = cut(visible(member.get("host") or "?", 80), 16)
        interface = f"{member['interface']}:" if member.get("interface") else ""
        room = max(12, 36 - columns(name))
        address = cut(visible(f"{interface}{member.get('address')}", 80), room)
        at_fault = bool(blamed & {str(member.get("host")), str(member.get("address"))})
        rows.append((y + _HEAD + _ROW * i + 12, name, address, at_fault))
    more = max(0, int(network.get("total") or 0) - MAX_HOSTS)
    kind = str(network.get("kind") or "private")
    return NetworkBox(x, y, _WIDE, _height(network), visible(network.get("network"), 60), kind, rows, more)


def _arrow(
    source: tuple[int, int, int, int], target: tuple[int, int, int, int], failed: Mapping[str, Any]
) -> FailedArrow:
    tip = visible(f"{failed.get('from')} -> {failed.get('address')} ({failed.get('count')})", 200)
    (x1, y1, *_), (x2, y2, *_) = source, target
    if x1 == x2:  # one box, or boxes above one another: a bow beside the rows
        side = x1 + _WIDE
        path = f"M{side} {y1}C{side + 34} {y1} {side + 34} {y2} {side + 8} {y2}"
        return FailedArrow(path, f"M{side + 1} {y2}l9 -5v10z", tip)
    to_right = x1 < x2
    start, end = (x1 + _WIDE, x2 - 1) if to_right else (x1, x2 + _WIDE + 1)
    near = end - 8 if to_right else end + 8
    middle = (start + near) // 2
    head = f"M{end} {y2}l{-9 if to_right else 9} -5v10z"
    return FailedArrow(f"M{start} {y1}C{middle} {y1} {middle} {y2} {near} {y2}", head, tip)
