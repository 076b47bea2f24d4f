"""Signatures that several parts of the diagnosis ask for."""

from __future__ import annotations

#: The job, or a rank of it, says that it came to its end.
FINISHED = (
    "training.finished",
    "training.ignite_end",
    "lightning.fit_stopped",
    "huggingface.train_completed",
    "huggingface.train_summary",
    "deepspeed.process_exits_ok",
    "verl.finished",
)
