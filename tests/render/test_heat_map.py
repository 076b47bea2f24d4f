from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.render import heat_map

from .documents import full, healthy


def square(names: int, links: list[Any], **more: Any) -> heat_map.HeatMap | None:
    return heat_map.draw({"peers": {"unit": "host", "names": [f"n{i}" for i in range(names)], "links": links, **more}})


def link(start: Any, end: Any, via: str = "P2P/IPC") -> dict[str, Any]:
    return {"from": start, "to": end, "via": via, "channels": 2}


def test_no_connection_no_square() -> None:
    assert heat_map.draw(healthy()) is None
    assert square(4, []) is None
    assert square(1, [link(0, 0)]) is None


@pytest.mark.parametrize(
    ("via", "name"),
    [
        ("P2P/CUMEM", "P2P"),
        ("NET/IB/0/GDRDMA", "NET/IB"),
        ("NET/Socket/1", "NET/Socket"),
        ("SHM/direct", "SHM"),
        ("COLL/x", ""),
        (None, ""),
    ],
)
def test_transports_by_their_first_words(via: Any, name: str) -> None:
    assert heat_map.kind(via) == name


def test_marks_legend_failures_and_rows() -> None:
    drawn = heat_map.draw(full())
    assert drawn is not None
    assert [(name, count) for _, _, name, count in drawn.legend] == [("P2P", 1), ("SHM", 1), ("NET/IB", 1), ("?", 1)]
    assert len(drawn.paths) == 4 and drawn.failed[0][1] == "1 -> 2"
    assert drawn.rows[0] == {"from": 0, "via": "P2P/CUMEM", "to": "1", "channels": 16}


def test_damaged_links_are_left_out() -> None:
    drawn = square(3, [link(0, 1), link(-1, 2), link(0, 99), link("0", 1), link(None, None)])
    assert drawn is not None and sum(count for *_, count in drawn.legend) == 1


def test_more_names_than_fit_are_counted() -> None:
    drawn = square(100, [link(i, (i + 1) % 100) for i in range(100)], total=512)
    assert drawn is not None
    assert drawn.left_out == 512 - heat_map.MAX_NAMES and drawn.step >= 11
    assert drawn.height < 900
