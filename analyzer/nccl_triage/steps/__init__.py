"""Events from the metrics of training steps: a slow rank, a slow-down, a spike or NaN before the failure.

A producer of events like any parser: from the sampled rows of ``Observations.curves`` to events of role context, which
rules weigh. Statistics are robust (median and median absolute deviation) and silent where there are too few numbers:
a wrong suspicion is worse than none. The sample is uniform over a log's lines, so medians are fair, and the last row
of each process is always kept; durations of one process are compared, never clocks of two.
"""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.observations.event import Event
from nccl_triage.observations.kinds import Produced
from nccl_triage.observations.store import Observations
from nccl_triage.steps import anomalies
from nccl_triage.steps.anomalies import Anomaly
from nccl_triage.steps.metric_series import JobMetrics

#: Fields of every event, those of one that compares a value with the usual one, and those that only some have.
_FIELDS, _COMPARED, _SOMETIMES = ("metric", "value", "over", "lasts"), ("usual", "ratio"), ("step", "derived")


def _produced(kind: str, meaning: str, *compared: str) -> Produced:
    return Produced(kind, meaning, (*_FIELDS, *compared), _SOMETIMES)


#: Signature -> kind, meaning and fields of its events.
PRODUCES: dict[str, Produced] = {
    "steps.slow_rank": _produced(
        "measurement", "A rank whose steps repeatedly take longer than its peers'.", *_COMPARED
    ),
    "steps.slow_down": _produced(
        "measurement", "The last steps before the failure took several times as long as usual.", *_COMPARED
    ),
    "steps.throughput_drop": _produced(
        "measurement", "Throughput of the last steps before the failure was a fraction of the usual.", *_COMPARED
    ),
    "steps.loss_spike": _produced(
        "numbers.bad",
        "Loss or gradient norm rose far above its usual value and stayed there until the failure.",
        *_COMPARED,
    ),
    "steps.loss_lost": _produced(
        "numbers.bad",
        "Loss or gradient norm was NaN or infinite from some step to the end of the log, without a failure.",
    ),
    "steps.loss_not_finite": _produced("numbers.bad", "Loss or gradient norm was NaN or infinite until the failure."),
}
#: Events made of one kind at most.
MAX_EVENTS = 8


def observe(observations: Observations) -> Observations:
    """Return the events that the numbers of the steps establish, nothing else."""
    found = Observations()
    if not observations.curves:
        return found
    metrics = JobMetrics(observations)
    for find in (anomalies.slow_ranks, anomalies.slowed, anomalies.spikes, anomalies.not_finite):
        for event in _events(find(metrics)):
            found.add(event, ("metric",))
    return found


def _events(found: list[Anomaly]) -> Iterator[Event]:
    found.sort(key=lambda one: (-one.ratio, one.row))
    for one in found[:MAX_EVENTS]:
        yield one.event()
