"""The history in the text format of Prometheus."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.render import history_metrics

KEPT: list[dict[str, Any]] = [
    {"verdict": "diagnosed", "cause": "gpu-hardware-fault", "recorded": 100.5},
    {"verdict": "diagnosed", "cause": "gpu-hardware-fault", "recorded": 90.0},
    {"verdict": "healthy", "cause": None, "recorded": 80.0},
]


def test_every_verdict_and_cause_is_counted() -> None:
    lines = history_metrics.text("1.2.3", 3600.0, KEPT, [("gpu07", 2, 100.5)]).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'nccl_triage_build_info{version="1.2.3"} 1',
        "nccl_triage_history_window_seconds 3600",
        'nccl_triage_history_diagnoses{verdict="diagnosed"} 2',
        'nccl_triage_history_diagnoses{verdict="unknown"} 0',
        'nccl_triage_history_diagnoses{verdict="healthy"} 1',
        'nccl_triage_history_incidents{cause="gpu-hardware-fault"} 2',
        "nccl_triage_history_last_diagnosis_timestamp_seconds 100.5",
        'nccl_triage_host_failures{host="gpu07"} 2',
        'nccl_triage_host_last_failure_timestamp_seconds{host="gpu07"} 100.5',
    ]


def test_an_empty_history_has_zeros_and_no_times() -> None:
    text = history_metrics.text("1", None, [], [])
    assert 'nccl_triage_history_diagnoses{verdict="unknown"} 0\n' in text
    assert "timestamp" not in text and "window_seconds" not in text and "host_failures" not in text


def test_a_time_keeps_its_seconds() -> None:
    text = history_metrics.text("1", None, [{"verdict": "unknown", "cause": None, "recorded": 1795802302.697608}], [])
    assert "timestamp_seconds 1795802302.697608\n" in text


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb 1\nup 0", 'x"} 1\nfake{y="'])
def test_labels_are_escaped(name: str) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    text = history_metrics.text("1", None, [{"verdict": "diagnosed", "cause": name, "recorded": 1.0}], [])
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert {"fake", "up"}.isdisjoint(families)
    assert [sample.labels for sample in families["nccl_triage_history_incidents"].samples] == [{"cause": name}]
