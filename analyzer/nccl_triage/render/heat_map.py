"""Who talks to whom, and how: a square of senders and receivers with one mark a connection, told apart by its path."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.render.shapes import shape
from nccl_triage.render.words import Document, cut, visible

#: The most rows and columns; more are left out.
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


def kind(via: object) -> str:
    """Return the transport's key in ``TRANSPORTS``: P2P/CUMEM is P2P, NET/IB/0/GDRDMA is NET/IB."""
    text = str(via or "")
    return next((name for name in TRANSPORTS if name and text.startswith(name)), "")


def draw(document: Document) -> HeatMap | None:
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
        name = kind(link.get("via"))
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
    drawn.rows = _rows(names, links)
    return drawn


def _rows(names: list[Any], links: list[Any]) -> list[dict[str, Any]]:
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
