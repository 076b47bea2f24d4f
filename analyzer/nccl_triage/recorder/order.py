"""How the calls of one rank came to differ from those of the others: one left out, one too many, two exchanged."""

from __future__ import annotations

from nccl_triage.recorder.groups import GroupView
from nccl_triage.recorder.vote import signature

#: Calls looked at behind the first one that differs, and the greatest shift.
_AHEAD, _SHIFT = 24, 8
_Row = list[tuple[object, ...] | None]


def _calls(view: GroupView, rank: int, start: int) -> _Row:
    found: _Row = []
    for seq in range(start, start + _AHEAD):
        cell = view.cells.get(seq)
        ways = [signature(way) for way, callers in cell.ways.items() if callers.ranks >> rank & 1] if cell else []
        found.append(tuple(sorted(ways, key=repr)) or None)
    while found and found[-1] is None:
        found.pop()
    return found


def _shifted(late: _Row, early: _Row, by: int) -> bool:
    """Tell whether one row is the other one without its first calls."""
    pairs = list(zip(late, early[by:], strict=False))
    return bool(pairs) and all(one == two for one, two in pairs)


def direction(view: GroupView, seq: int, odd: int, common: int) -> tuple[str, int]:
    """Return what the odd rank did to the order (skipped, inserted, exchanged, or nothing that can be told), and how many calls."""
    mine, theirs = _calls(view, odd, seq), _calls(view, common, seq)
    if len(mine) > 1 and len(theirs) > 1 and mine[0] == theirs[1] and mine[1] == theirs[0]:
        return "exchanged", 2
    for by in range(1, _SHIFT + 1):
        skipped, inserted = _shifted(mine, theirs, by), _shifted(theirs, mine, by)
        if skipped != inserted:
            return ("skipped" if skipped else "inserted"), by
    return "", 0
