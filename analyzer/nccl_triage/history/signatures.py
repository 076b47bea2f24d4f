"""The signatures of what the history knows of the hosts and GPUs of a job."""

from __future__ import annotations

from nccl_triage.kinds import Produced

HOST, GPU = "history.host_failed_before", "history.gpu_failed_before"
#: Signature -> kind and meaning, as parsers declare what they make.
PRODUCES: dict[str, Produced] = {
    HOST: Produced("recall", "Earlier diagnoses named this host as the culprit of the same cause."),
    GPU: Produced("recall", "Earlier diagnoses named a GPU that fails in this log, too."),
}
#: Why a host is named that only its earlier failures speak of; nobody is to count that as one more.
WHY = {
    "en": "nothing in this log names a host; this one failed in the same way before",
    "zh": "本日志未点明主机；这台主机此前以同样的方式失败过",
}
#: The source of such events.
SOURCE = "<history>"
