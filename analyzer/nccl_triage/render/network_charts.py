"""Charts of the network: the map of networks with their hosts, and the square of senders and receivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.render.chart_symbols import WIDTH, shape
from nccl_triage.render.words import Document, columns, cut, visible

#: Maximum number of boxes, of hosts in one box and of arrows; the table lists all.
MAX_BOXES, MAX_HOSTS, MAX_ARROWS = 12, 12, 24
_GAP, _ROW, _HEAD, _ACROSS = 40, 24, 44, 3
_WIDE = (WIDTH - _GAP * (_ACROSS - 1)) // _ACROSS


@dataclass(frozen=True)
class NetworkBox:
    """One network: its place, its name, its kind, and a row for each address in it."""

    x: int
    y: int
    width: int
    height: int
    name: str
    kind: str
    rows: list[tuple[int, str, str]]
    more: int


@dataclass(frozen=True)
class FailedArrow:
    """A connection that failed; ``address`` is what could not be reached."""

    path: str
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
    places: dict[str, tuple[int, int, int, int]] = {}
    hosts: dict[str, str] = {}
    y = 2
    for start in range(0, min(len(networks), MAX_BOXES), _ACROSS):
        row = networks[start : start + _ACROSS]
        tallest = max(_height(network) for network in row)
        for column, network in enumerate(row):
            box = _box(network, column * (_WIDE + _GAP), y)
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


def _box(network: Mapping[str, Any], x: int, y: int) -> NetworkBox:
    members: Sequence[Mapping[str, Any]] = network.get("members") or []
    rows = []
    for i, member in enumerate(members[:MAX_HOSTS]):
        name = cut(visible(member.get("host") or "?", 80), 16)
        interface = f"{member['interface']}:" if member.get("interface") else ""
        room = max(12, 36 - columns(name))
        rows.append((y + _HEAD + _ROW * i + 12, name, cut(visible(f"{interface}{member.get('address')}", 80), room)))
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
        return FailedArrow(f"M{side} {y1}C{side + 34} {y1} {side + 34} {y2} {side + 2} {y2}", tip)
    start, end = (x1 + _WIDE, x2 - 2) if x1 < x2 else (x1, x2 + _WIDE + 2)
    middle = (start + end) // 2
    return FailedArrow(f"M{start} {y1}C{middle} {y1} {middle} {y2} {end} {y2}", tip)


#: Maximum number of rows and columns.
MAX_NAMES = 64
#: Room for names beside and above the square, and for the end of the last one above, which is slanted.
_LABEL, _TOP, _SLANT = 120, 72, 44
#: What a connection runs over -> shape and class; a transport that is not listed is drawn as the last.
TRANSPORTS = {
    "P2P": ("square", "blue"),
    "NVLS": ("square", "soft"),
    "SHM": ("triangle", "quiet"),
    "NET/IB": ("dot", "text"),
    "NET/Socket": ("ring", "text"),
    "": ("dash", "quiet"),
}


@dataclass
class HeatMap:
    """The square's marks, one path a transport, and the rows of its table."""

    unit: str
    width: int
    height: int
    step: int
    names: list[tuple[int, str]] = field(default_factory=list)
    columns: list[tuple[int, str]] = field(default_factory=list)
    paths: list[tuple[str, str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    legend: list[tuple[str, str, str, int]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0


def transport_kind(via: object) -> str:
    """Return the transport's key in ``TRANSPORTS``: P2P/CUMEM is P2P, NET/IB/0/GDRDMA is NET/IB."""
    text = str(via or "")
    return next((name for name in TRANSPORTS if name and text.startswith(name)), "")


def draw_heat_map(document: Document) -> HeatMap | None:
    """Return the square, or None where the log names no connection."""
    found = document.get("peers") or {}
    names, links = found.get("names") or [], found.get("links") or []
    if len(names) < 2 or not links:
        return None
    shown = min(len(names), MAX_NAMES)
    step = max(11, min(28, 720 // shown))
    drawn = HeatMap(str(found.get("unit") or "rank"), _LABEL + shown * step + _SLANT, _TOP + shown * step + 8, step)
    drawn.left_out = max(0, int(found.get("total") or len(names)) - shown)
    every = 1 if step >= 16 else 4 if shown > 32 else 2
    prefix = "rank " if drawn.unit == "rank" else ""
    for i, name in enumerate(names[:shown]):
        if i % every == 0:
            label = cut(visible(f"{prefix}{name}", 80), 18)
            drawn.names.append((_TOP + i * step + step // 2 + 4, label))
            drawn.columns.append((_LABEL + i * step + step // 2 + 4, cut(visible(name, 80), 9)))
    parts: dict[str, list[str]] = {}
    counted: Counter[str] = Counter()
    radius = max(3, step // 2 - 3)
    for link in links:
        start, end = link.get("from"), link.get("to")
        if not (isinstance(start, int) and isinstance(end, int) and 0 <= start < shown and 0 <= end < shown):
            continue
        name = transport_kind(link.get("via"))
        counted[name] += 1
        at = _LABEL + end * step + step // 2, _TOP + start * step + step // 2
        parts.setdefault(name, []).append(shape(TRANSPORTS[name][0], *at, radius))
    drawn.paths = [(TRANSPORTS[name][1], name or "?", "".join(parts[name])) for name in TRANSPORTS if name in parts]
    drawn.legend = [
        (TRANSPORTS[name][1], shape(TRANSPORTS[name][0], 9, 9, 6), name or "?", counted[name])
        for name in TRANSPORTS
        if counted[name]
    ]
    for failed in found.get("failed") or []:
        start, end = failed.get("from"), failed.get("to")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < shown and 0 <= end < shown:
            at = _LABEL + end * step + step // 2, _TOP + start * step + step // 2
            drawn.failed.append((shape("cross", *at, radius + 2), f"{names[start]} -> {names[end]}"))
    drawn.rows = _heat_map_rows(names, links)
    return drawn


def _heat_map_rows(names: list[Any], links: list[Any]) -> list[dict[str, Any]]:
    """Return one row a sender and path: whom it sends to, over how many channels."""
    groups: dict[tuple[int, str], list[Any]] = {}
    for link in links:
        if isinstance(link.get("from"), int) and 0 <= link["from"] < len(names):
            groups.setdefault((link["from"], str(link.get("via") or "?")), []).append(link)
    return [
        {
            "from": names[start],
            "via": via,
            "to": ", ".join(
                str(names[e["to"]]) for e in found if isinstance(e.get("to"), int) and e["to"] < len(names)
            ),
            "channels": max(int(entry.get("channels") or 0) for entry in found),
        }
        for (start, via), found in sorted(groups.items())
    ]
