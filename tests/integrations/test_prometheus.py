"""The metrics of the page are those that are printed, and the dashboard asks for nothing else."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from nccl_triage.history import store
from tests.history.made import DAY, NOW, failed, healthy

from .conftest import EXAMPLES, Commands
from .pages import block

DASHBOARD = EXAMPLES / "prometheus" / "dashboard.json"
PAGE = (EXAMPLES / "prometheus.md").read_text(encoding="utf-8")


@pytest.fixture
def metrics(commands: Commands, tmp_path: Path) -> Path:
    """Return the file that the line of the page writes."""
    history = tmp_path / "history.sqlite"
    with store.writable(history) as kept:
        kept.keep(failed("gpu07", days=1))
        kept.keep(healthy(0.5))
    line = block("prometheus.md", "history prometheus").split("* * * * ")[1]
    folder = tmp_path / "textfile"
    folder.mkdir()
    command = line.replace("/var/lib/node_exporter/textfile", str(folder))
    for _ in range(2):
        result = commands.run("bash", "-c", command, env={"NCCL_TRIAGE_HISTORY": str(history)})
        assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert [path.name for path in folder.iterdir()] == ["nccl_triage.prom"]
    return folder / "nccl_triage.prom"


def names(text: str) -> set[str]:
    return set(re.findall(r"\bnccl_triage_[a-z_]+\b", text))


def test_page_and_dashboard_name_what_is_printed(metrics: Path) -> None:
    printed = set(re.findall(r"^# TYPE (\S+) gauge$", metrics.read_text(encoding="utf-8"), re.MULTILINE))
    assert names(PAGE) - {"nccl_triage_history"} == printed
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    asked = {name for panel in panels for target in panel["targets"] for name in names(target["expr"])}
    assert asked and asked <= printed


def test_the_umask_alone_decides_who_reads_it(metrics: Path) -> None:
    os.umask(mask := os.umask(0))
    assert metrics.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_parser_of_prometheus_reads_it(metrics: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in parser.text_string_to_metric_families(metrics.read_text(encoding="utf-8"))
        for sample in family.samples
    }
    assert found["nccl_triage_host_failures", "gpu07"] == 1
    assert found["nccl_triage_history_diagnoses", "healthy"] == 1
    assert found["nccl_triage_history_incidents", "gpu-hardware-fault"] == 1
    assert found["nccl_triage_host_last_failure_timestamp_seconds", "gpu07"] == NOW - DAY


def test_the_panels_can_be_placed() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["datasource"]["uid"] == "${" + board["templating"]["list"][0]["name"] + "}"
