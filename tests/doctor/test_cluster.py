"""Every node of a real Ray cluster is looked at, and what differs is blamed on the node that stands alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from nccl_triage import resources
from nccl_triage.cli import cli
from nccl_triage.doctor import cluster as nodes
from nccl_triage.doctor.collect import ProbeOptions
from nccl_triage.doctor.document import build
from nccl_triage.doctor.text import text
from nccl_triage.hosts.ray_launcher import RayLauncher
from tests.raylets import MARKS, NODE

pytestmark = MARKS

#: Three imports of torch at once take longer than all the rest.
NO_TORCH = "/nonexistent/python"


@pytest.fixture
def odd_node(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A third raylet that was started with another variable."""
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "docker0")
    node = cluster.add_node(**NODE)
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node, allow_graceful=False)


def test_the_odd_node_is_named_and_one_that_dies_is_told(
    cluster: Any, odd_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "hosts.json"
    words = ["doctor", "--ray-address", cluster.address, "--python", NO_TORCH, "--format", "json", "-o", str(saved)]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    compare(json.loads(saved.read_bytes()))
    opened = RayLauncher.open

    def open_and_kill(self: RayLauncher, place: int) -> Any:
        made = opened(self, place)
        if place == 2:
            cluster.remove_node(odd_node, allow_graceful=False)
        return made

    monkeypatch.setattr(RayLauncher, "open", open_and_kill)
    told: list[tuple[int, int]] = []
    collected = nodes.collect(cluster.address, ProbeOptions(NO_TORCH), lambda done, total: told.append((done, total)))
    assert [one.problem is None for one in collected].count(False) == 1
    assert told[-1] == (3, 3)
    document = build(collected)
    assert document["verdict"] == "problems"
    assert "did not answer" in text(document, "en")


def compare(document: dict[str, Any]) -> None:
    schema = json.loads((resources.reports_dir() / "schema" / "doctor.schema.json").read_text("utf-8"))
    jsonschema.validate(document, schema)
    hosts = {host["host"]: host for host in document["hosts"]}
    assert len(hosts) == 3
    assert all(host["problem"] is None and host["facts"]["system"]["cores"] for host in hosts.values())
    found = {one["fact"]: one for one in document["differences"]}
    variable = found["variable:NCCL_SOCKET_IFNAME"]
    assert variable["majority"] is None
    assert [entry["value"] for entry in variable["values"]] == [None, "docker0"]
    [odd] = variable["minority"]
    assert hosts[odd]["facts"]["environment"]["variables"]["NCCL_SOCKET_IFNAME"] == "docker0"
    assert found["interface"]["minority"] == [odd]
    assert "nccl-interface" in {check["id"] for check in hosts[odd]["checks"] if check["state"] == "failed"}
    assert not {"driver", "torch", "kernel", "variable:RAY_ADDRESS"} & set(found)
