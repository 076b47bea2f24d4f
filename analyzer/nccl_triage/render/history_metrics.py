"""The history as metrics in the text format of Prometheus, for the textfile collector of its node_exporter.

Gauges over a window of time, since incidents are forgotten and replaced: nothing here only ever grows. Labels are bounded:
verdicts and causes are few, and of the hosts those with most failures are named.

Source: prometheus.io/docs/instrumenting/exposition_formats, and /docs/practices/naming.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

VERDICTS = ("diagnosed", "unknown", "healthy")
_Sample = tuple[Mapping[str, str], float]


def text(
    version: str, window: float | None, incidents: Sequence[Mapping[str, Any]], hosts: Iterable[tuple[str, int, float]]
) -> str:
    """Return the metrics.

    ``incidents`` have ``verdict``, ``cause`` and ``recorded`` in seconds of the epoch; ``hosts`` are name, failures and
    time of the last one; ``window`` is in seconds, None for everything.
    """
    verdicts = Counter(one["verdict"] for one in incidents)
    causes = Counter(str(one["cause"]) for one in incidents if one["verdict"] == "diagnosed" and one["cause"])
    hosts = list(hosts)
    last: list[_Sample] = [({}, max(one["recorded"] for one in incidents))] if incidents else []
    lines = [
        *_metric("build_info", "Version of nccl-triage.", [({"version": version}, 1)]),
        *_metric("history_window_seconds", "Age up to which diagnoses count.", [({}, window)] if window else []),
        *_metric(
            "history_diagnoses", "Diagnoses in the window, by verdict.",
            [({"verdict": name}, verdicts[name]) for name in VERDICTS],
        ),
        *_metric(
            "history_incidents", "Diagnosed failures in the window, by cause.",
            [({"cause": name}, count) for name, count in sorted(causes.items())],
        ),
        *_metric("history_last_diagnosis_timestamp_seconds", "When the last diagnosis was made.", last),
        *_metric(
            "host_failures", "Failures in the window that name the host, from causes it can be to blame for.",
            [({"host": name}, count) for name, count, _ in hosts],
        ),
        *_metric(
            "host_last_failure_timestamp_seconds", "When the host failed last.",
            [({"host": name}, at) for name, _, at in hosts],
        ),
    ]  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


def _metric(name: str, help: str, samples: Sequence[_Sample]) -> list[str]:
    """Return the lines of one metric; of one without samples none."""
    full = f"nccl_triage_{name}"
    head = [f"# HELP {full} {help}", f"# TYPE {full} gauge"] if samples else []
    return [*head, *(f"{full}{_labels(labels)} {value:.16g}" for labels, value in samples)]


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
