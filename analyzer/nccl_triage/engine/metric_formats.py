"""Metrics that programs print again and again, and the formats of the lines that print them.

``rules/series/metrics.yaml`` lists the metrics, ``rules/series/*.yaml`` the formats. A format has literals (each of its
lines contains one of them), a pattern that recognises a line, and names of metrics. Names under ``values`` stand before
their number (``loss: 2.31``), names under ``after`` follow it (``51234 tok/s``). ``step`` and ``epoch`` are names like
any other, and may also be groups of the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from nccl_triage.engine.pattern import Pattern

#: Units of metrics, each with the units of printed numbers and their factors; ``per s`` is inverted. Programs write GB
#: and mean 2^30 bytes (torch.cuda, DeepSpeed ``see_memory_usage``).
UNITS: dict[str, dict[str, float]] = {
    "none": {},
    "s": {"s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "per s": 1.0},
    "GiB": {
        **dict.fromkeys(("g", "gb", "gib"), 1.0),
        **dict.fromkeys(("m", "mb", "mib"), 2.0**-10),
        **dict.fromkeys(("kb", "kib"), 2.0**-20),
        **dict.fromkeys(("tb", "tib"), 2.0**10),
        "b": 2.0**-30,
    },
    "%": {"%": 1.0, "fraction": 100.0},
    "tokens/s": {},
    "samples/s": {},
    "TFLOP/s": {},
}
#: Names that are no metrics: where in the job a line stands.
PLACES = ("step", "epoch")


class Metric(NamedTuple):
    """A number that programs print again and again; ``unit`` is one of ``UNITS``."""

    id: str
    title: dict[str, str]
    unit: str
    where: str


class PrintedName(NamedTuple):
    """The name of a metric (or a place) in a line, and the unit of its numbers if the line does not state it."""

    text: str
    metric: str
    unit: str | None = None


class LineSample(NamedTuple):
    """A line with the numbers that must be read from it, in the units of the metrics."""

    line: str
    gives: dict[str, float]


class LineFormat(NamedTuple):
    """A shape of lines that print metrics."""

    id: str
    program: str
    literals: tuple[str, ...]
    pattern: Pattern
    where: str
    values: tuple[PrintedName, ...] = ()
    after: tuple[PrintedName, ...] = ()
    match_samples: tuple[LineSample, ...] = ()
    not_samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesRules:
    """All metrics in the order of their importance, and all formats in the order in which they are tried."""

    metrics: dict[str, Metric] = field(default_factory=dict)
    formats: dict[str, LineFormat] = field(default_factory=dict)
