"""The signatures of events that recurrences become."""

from __future__ import annotations

from nccl_triage.observations.kinds import Produced

HOST, GPU = "history.host_failed_before", "history.gpu_failed_before"
CAUSE = "history.cause_came_back"
_TIMES = ("cause", "times", "days", "first", "last", "incidents")
#: Signature -> kind and meaning, as parsers declare what they make.
PRODUCES: dict[str, Produced] = {
    HOST: Produced("recall", "Earlier diagnoses named this host as the culprit of the same cause.", ("host", *_TIMES)),
    GPU: Produced("recall", "Earlier diagnoses named a GPU that also fails in this log.", ("host", "gpu", *_TIMES)),
    CAUSE: Produced("recall", "Earlier diagnoses named a cause of failures of this job.", ("hosts", *_TIMES)),
}
#: The source of such events.
SOURCE = "<history>"
