"""Charts of the network."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nccl_triage.render import network_charts
from nccl_triage.render.chart_symbols import WIDTH

from .documents import full, healthy


def members(network: str, hosts: int, total: int | None = None) -> dict[str, Any]:
    entries = [
        {"host": f"h{network}-{i}", "interface": "eth0", "address": f"{network}.{i}", "path": "a", "line": i}
        for i in range(hosts)
    ]
    return {"network": f"{network}.0/24", "kind": "private", "members": entries, "total": total or hosts}


def drawn(networks: list[dict[str, Any]], failed: list[dict[str, Any]] | None = None, total: int | None = None) -> Any:
    return network_charts.draw_network_map(
        {"network": {"networks": networks, "failed": failed or [], "total": total or len(networks)}}
    )


def test_nothing_known_nothing_drawn() -> None:
    assert network_charts.draw_network_map(healthy()) is None
    assert network_charts.draw_network_map({"network": {"networks": [], "failed": [], "total": 0}}) is None


def test_a_box_a_network_and_an_arrow_a_failed_connection() -> None:
    found = network_charts.draw_network_map(full())
    assert found is not None
    assert [box.name for box in found.boxes] == ["10.0.0.0/24", "172.17.0.0/24"]
    assert len(found.arrows) == 1 and "node-a -> 172.17.0.1 (12)" in found.arrows[0].tip


def test_boxes_do_not_overlap_and_stay_on_the_page() -> None:
    found = drawn([members(f"10.{i}.0", 3 + i) for i in range(9)])
    for one in found.boxes:
        assert one.x >= 0 and one.x + one.width <= WIDTH and one.y + one.height <= found.height
        for two in found.boxes:
            apart_x = one.x + one.width <= two.x or two.x + two.width <= one.x
            apart_y = one.y + one.height <= two.y or two.y + two.height <= one.y
            assert one is two or apart_x or apart_y


def test_many_networks_and_hosts_are_counted() -> None:
    found = drawn([members(f"10.{i}.0", 30, 64) for i in range(20)], total=33)
    assert len(found.boxes) == network_charts.MAX_BOXES and found.left_out == 33 - network_charts.MAX_BOXES
    assert all(
        len(box.rows) == network_charts.MAX_HOSTS and box.more == 64 - network_charts.MAX_HOSTS for box in found.boxes
    )


def test_arrows_within_a_box_across_and_to_places_that_are_not_on_the_map() -> None:
    nets = [members("10.0.0", 2), members("10.1.0", 2)]

    def fail(source: str | None, address: str) -> dict[str, Any]:
        return {"from": source, "to": None, "address": address, "count": 1, "path": "a", "line": 1}

    found = drawn(
        nets,
        [fail("h10.0.0-0", "10.0.0.1"), fail("h10.0.0-0", "10.1.0.1"), fail("h10.1.0-0", "10.0.0.0"),
         fail(None, "10.0.0.1"), fail("h10.0.0-0", "8.8.8.8"), fail("h10.0.0-0", "10.0.0.0")],
    )  # fmt: skip
    assert len(found.arrows) == 3
    for arrow in found.arrows:
        assert re.fullmatch(r"M\d+ \d+C\d+ \d+ \d+ \d+ \d+ \d+", arrow.path)


def square(names: int, links: list[Any], **more: Any) -> network_charts.HeatMap | None:
    return network_charts.draw_heat_map(
        {"peers": {"unit": "host", "names": [f"n{i}" for i in range(names)], "links": links, **more}}
    )


def link(start: Any, end: Any, via: str = "P2P/IPC") -> dict[str, Any]:
    return {"from": start, "to": end, "via": via, "channels": 2}


def test_no_connection_no_square() -> None:
    assert network_charts.draw_heat_map(healthy()) is None
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
    assert network_charts.transport_kind(via) == name


def test_marks_legend_failures_and_rows() -> None:
    drawn = network_charts.draw_heat_map(full())
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
    assert drawn.left_out == 512 - network_charts.MAX_NAMES and drawn.step >= 11
    assert drawn.height < 900
