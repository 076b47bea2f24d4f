"""Charts of the network."""

from __future__ import annotations

import re
from typing import Any

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
        assert re.fullmatch(r"M\d+ \d+l-?9 -5v10z", arrow.head)


def test_an_arrow_ends_at_the_box_that_could_not_be_reached() -> None:
    found = network_charts.draw_network_map(full())
    assert found is not None
    (arrow,) = found.arrows
    tip = int(arrow.head[1:].split(" ")[0])
    assert tip == found.boxes[1].x - 1


def test_culprits_are_marked_by_host_or_address() -> None:
    doc = full()
    doc["diagnoses"][0]["culprits"] = [{"rank": None, "host": None, "address": "172.17.0.1"}]
    found = network_charts.draw_network_map(doc)
    assert found is not None
    assert [(host, at_fault) for box in found.boxes for _, host, _, at_fault in box.rows] == [
        ("node-a", False),
        ("node-b", True),
    ]
