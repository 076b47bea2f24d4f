"""Which nodes an argument means."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.errors import UsageError
from nccl_triage.execution.cluster import targets
from nccl_triage.hosts.ray_nodes import SESSION, departed, nodes_of


def told(host: str, address: str, number: int, alive: bool = True, socket: str = "") -> dict[str, Any]:
    return {
        "NodeID": f"{number:056x}",
        "NodeManagerHostname": host,
        "NodeManagerAddress": address,
        "Alive": alive,
        "RayletSocketName": socket,
    }


CLUSTER = nodes_of([
    told("gpu2.example.org", "10.0.0.2", 2, socket="/ssd/ray/session_7/sockets/raylet"),
    told("gpu1.example.org", "10.0.0.1", 1),
    told("gpu1.example.org", "10.0.0.1", 4),
    told("gpu3", "10.0.0.3", 3, alive=False),
    told("gpu2.example.org", "10.0.0.2", 5, alive=False),
    told("10.0.0.9", "10.0.0.9", 9),
])  # fmt: skip


def asked(*arguments: str) -> dict[str, list[str]]:
    return {node.name: paths for node, paths in targets.by_node(arguments, CLUSTER).items()}


def test_hosts_are_named_as_they_name_themselves_and_told_apart() -> None:
    assert [node.name for node in CLUSTER] == ["10.0.0.9", "gpu1", "gpu1#2", "gpu2", "gpu2#2", "gpu3"]


def test_names_addresses_ids_and_patterns() -> None:
    assert asked("node:gpu2/a", "node:gpu1#2/b/*.log", "node:10.0.0.1/c") == {
        "gpu2": ["/a"],
        "gpu2#2": ["/a"],
        "gpu1#2": ["/b/*.log", "/c"],
        "gpu1": ["/c"],
    }
    assert asked(f"node:{9:056x}/x") == {"10.0.0.9": ["/x"]}
    assert set(asked("node:*/x")) == {node.name for node in CLUSTER}


def test_without_a_path_the_logs_of_the_nodes_own_session_are_meant() -> None:
    session = [SESSION]
    assert asked("node:gpu[23]") == {"gpu2": ["/ssd/ray/session_7/logs"], "gpu3": session, "gpu2#2": session}
    assert asked("node:gpu1/") == asked("node:gpu1") == {"gpu1": [SESSION], "gpu1#2": [SESSION]}


def test_a_dead_node_is_told_unless_another_lives_in_its_place() -> None:
    everything = list(targets.by_node(["node:*"], CLUSTER))
    assert departed(everything, CLUSTER) == ["gpu3"]


def test_a_name_that_no_node_has() -> None:
    with pytest.raises(UsageError) as caught:
        asked("node:gpu7/x")
    assert caught.value.cause == "its nodes are 10.0.0.9, gpu1, gpu1#2, gpu2, gpu2#2, gpu3"
