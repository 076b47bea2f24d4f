"""The signatures of what the history knows of the hosts and GPUs of a job."""

from __future__ import annotations

HOST, GPU = "history.host_failed_before", "history.gpu_failed_before"
#: Signature -> meaning, as parsers declare what they make.
PRODUCES = {
    HOST: "Earlier diagnoses named this host as the culprit of the same cause.",
    GPU: "Earlier diagnoses named a GPU that fails in this log, too.",
}
#: The source of such events.
SOURCE = "<history>"
