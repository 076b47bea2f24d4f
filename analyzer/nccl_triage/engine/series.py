"""What can be read as a curve: metrics with titles and units, and the formats of lines that print them.

``rules/series/metrics.yaml`` lists the metrics, ``rules/series/*.yaml`` the formats. A format has literals (one of
them stands in each of its lines), a pattern that recognises a line, and names: ``values`` stand before their number
(``loss: 2.31``), ``after`` behind it (``51234 tok/s``). ``step`` and ``epoch`` are names like any other, and also
groups of the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nccl_triage.engine.pattern import Pattern

#: Units of metrics, and the units of printed numbers with what one of them is in the metric's unit; ``per s`` is turned
#: over. Programs write GB and mean 2^30 bytes (torch.cuda, DeepSpeed ``see_memory_usage``).
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
#: Names that are no metric: where in the job a line stands.
PLACES = ("step", "epoch")


@dataclass(frozen=True, slots=True)
class Metric:
    """Something that is printed again and again; ``unit`` is one of ``UNITS``."""

    id: str
    title: dict[str, str]
    unit: str
    where: str


@dataclass(frozen=True, slots=True)
class Name:
    """How a line calls a metric (or a place), and in what unit its numbers are when the line does not say."""

    text: str
    metric: str
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A line with the numbers that it must give, in the units of the metrics; ``nan`` and ``inf`` as floats."""

    line: str
    gives: dict[str, float]


@dataclass(frozen=True, slots=True)
class Format:
    """One shape of line."""

    id: str
    program: str
    literals: tuple[str, ...]
    pattern: Pattern
    where: str
    values: tuple[Name, ...] = ()
    after: tuple[Name, ...] = ()
    match_samples: tuple[Sample, ...] = ()
    not_samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesRules:
    """All metrics, in the order of their importance, and all formats, in the order in which they are tried."""

    metrics: dict[str, Metric] = field(default_factory=dict)
    formats: dict[str, Format] = field(default_factory=dict)
